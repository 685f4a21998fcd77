"""Fitted Q evaluation of many policies at once: one network for every policy and every member of the bootstrap.

First each member learns Q^mu, the value of the log's own behaviour, on its own episodes. Then every policy's network
starts as a copy of it and learns Q^p, on batches that all policies share; the log's own goes on beside them. So what
differs between Q^p and Q^mu of a member is the policy, and not the first weights, the episodes or the batches. No
minimum is taken over members: the aim is the value, not a bound.
"""

from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from sbac import interrupts
from sbac.errors import UserError, unknown
from sbac.nn import MLP, Trained, half_cosine, polyak
from sbac.nn.typed import jit, loop, take
from sbac.trust.log import Log, Resampling, Transitions

RECORDS = 20
"""How often the values are noted while they are learned."""


@dataclass(frozen=True)
class Effort:
    """How much is spent on an estimate."""

    replicates: int
    """Of the bootstrap: how often the episodes are drawn anew."""
    folds: int
    hidden: tuple[int, ...]
    batch_size: int
    steps: tuple[int, int]
    """For the log's own value, and from there for that of the policies."""
    learning_rate: float
    target_rate: float
    """Values settle in about 1 / (rate (1 - gamma)) steps."""


EFFORTS = {
    "quick": Effort(6, 2, (64, 64), 128, (3_000, 4_000), 1e-3, 0.1),
    "full": Effort(8, 2, (256, 256), 256, (10_000, 20_000), 3e-4, 0.02),
}


def find_effort(name: str) -> Effort:
    if name not in EFFORTS:
        raise unknown("effort", name, EFFORTS)
    return EFFORTS[name]


class Learner(eqx.Module):
    """Networks and their slow copies, which values are read from; the axes are (policies, members)."""

    online: Trained[MLP]
    target: MLP


class Tables(eqx.Module):
    """All that a step reads, on the device."""

    transitions: Transitions
    after: Float[Array, "policies rows act"]
    """The policies' actions at the next states."""
    starts: Float[Array, "episodes obs"]
    first: Float[Array, "policies episodes act"]
    """Their actions at the first states."""
    rows: Array
    counts: Array
    reading: Float[Array, "members episodes"]


@dataclass(frozen=True)
class Fitted:
    """What the networks say, in the log's units. The first policy is the log's own behaviour."""

    values: NDArray[np.float64]
    """J of every record, policy and replicate."""
    own: NDArray[np.float64]
    """The mean discounted return of the log's episodes, with each replicate's weights."""
    largest: NDArray[np.float64]
    """Of each policy: the largest value at a first state, by the mean over the members."""
    least: NDArray[np.float64]
    networks: MLP
    """(policies, members)"""


def fit(
    log: Log, sample: Resampling, after: Array, first: Array, effort: Effort, seed: int, progress: "Reporter"
) -> Fitted:
    """Learns the values of all policies whose actions are given; the log's own come first in them."""
    key = jax.random.key(seed, impl="threefry2x32")
    net_key, own_key, policy_key = jax.random.split(key, 3)
    members, sizes = len(sample.counts), log.starts.shape[1] + after.shape[2]

    def network(key: PRNGKeyArray) -> MLP:
        return MLP.create(key, sizes, effort.hidden, 1, normalise=True, last_scale=0.1)

    nets = jax.vmap(jax.vmap(network))(jax.random.split(net_key, (1, members)))
    learner = Learner(jax.vmap(jax.vmap(Trained[MLP].create))(nets), nets)
    tables = Tables(log.transitions, after, log.starts, first, sample.rows, sample.counts, sample.reading)
    own_tables = replace(tables, after=after[:1], first=first[:1])
    steps = effort.steps[0] // RECORDS
    for record in range(RECORDS):
        learner, _ = advance(effort, True, steps, log.discount, own_tables, learner, own_key, record * steps)
        progress("the log's own value", record + 1, RECORDS)
    learner = take(learner, np.zeros(len(after), int))  # a copy for every policy
    steps = effort.steps[1] // RECORDS
    records: list[np.ndarray] = []
    for record in range(RECORDS):
        learner, values = advance(effort, False, steps, log.discount, tables, learner, policy_key, record * steps)
        records.append(np.asarray(values, np.float64))
        progress("the policies' values", record + 1, RECORDS)
    units = log.units
    by_member = units.centre + units.spread * np.stack(records)
    values = by_member.reshape(*by_member.shape[:2], -1, sample.folds).mean(-1)
    at_starts = units.centre + units.spread * np.asarray(values_at(learner.target, log.starts, first), np.float64)
    if not np.isfinite(values).all():
        raise UserError(f"dataset {log.data.name}: the values do not stay finite; look at it with sbac data check")
    weights = sample.weights / sample.weights.sum(1, keepdims=True)
    return Fitted(
        values,
        weights @ whole_returns(log, learner.target),
        at_starts.max(1),
        at_starts.min(1),
        learner.target,
    )


class Reporter:
    """Is told how far an estimate is. This one says nothing."""

    def __call__(self, what: str, done: int, total: int) -> None:
        interrupts.check()


@partial(jit, static=(0, 1, 2))
def advance(
    effort: Effort,
    own: bool,
    steps: int,
    discount: float,
    tables: Tables,
    learner: Learner,
    key: PRNGKeyArray,
    start: int,
) -> tuple[Learner, Float[Array, "policies members"]]:
    """Some steps of all networks, and the values after them. `own`: those in which the log's own value is learned."""
    total = effort.steps[0 if own else 1]

    def step(i: Array, learner: Learner) -> Learner:
        number = start + i
        bits = jax.random.bits(jax.random.fold_in(key, number), (len(tables.counts), effort.batch_size), jnp.uint32)
        drawn = (bits % tables.counts[:, None].astype(jnp.uint32)).astype(jnp.int32)
        rows = jnp.take_along_axis(tables.rows, drawn, axis=1)
        # The returns of the log lead the way at first: values then need not travel through the whole of an episode.
        share = jnp.maximum(0.0, 1.0 - 2.0 * number / total) if own else jnp.zeros(())
        rate = effort.learning_rate * (1.0 if own else half_cosine(number, total))

        def policy(learner: Learner, after: Array) -> Learner:
            def member(learner: Learner, rows: Array) -> Learner:
                return td_step(learner, take(tables.transitions, rows), after[rows], discount, share, rate, effort)

            return jax.vmap(member)(learner, rows)

        return jax.vmap(policy)(learner, tables.after)

    learner = loop(steps, step, learner)
    return learner, jax.vmap(partial(starting_values, tables))(learner.target, tables.first)


def td_step(
    learner: Learner,
    batch: Transitions,
    next_actions: Float[Array, "batch act"],
    discount: float | Float[Array, ""],
    share: Float[Array, ""],
    rate: float | Float[Array, ""],
    effort: Effort,
) -> Learner:
    """One step of one network towards r + gamma q'(s', a'), and towards the log's return with weight `share`."""
    ahead = learner.target.scalar(batch.next_states, next_actions)
    bootstrapped = batch.rewards + discount * batch.going_on * ahead
    wanted = (1.0 - share) * bootstrapped + share * batch.returns

    def loss(net: MLP) -> tuple[Array, None]:
        return ((net.scalar(batch.states, batch.actions) - wanted) ** 2).mean(), None

    online, _ = learner.online.minimise(loss, rate)
    return Learner(online, polyak(learner.target, online.model, effort.target_rate))


def starting_values(tables: Tables, nets: MLP, first: Float[Array, "episodes act"]) -> Float[Array, " members"]:
    """The mean of each member's values at the first states that it is read at."""

    def member(net: MLP, reading: Float[Array, " episodes"]) -> Float[Array, ""]:
        return (reading * net.scalar(tables.starts, first)).sum()

    return jax.vmap(member)(nets, tables.reading)


@jit
def values_at(
    networks: MLP, states: Float[Array, "*policies rows obs"], actions: Float[Array, "policies rows act"]
) -> Float[Array, "policies rows"]:
    """Each policy's q at its own actions, by the mean of its members; at states of its own, or at shared ones."""

    def policy(nets: MLP, states: Float[Array, "rows obs"], actions: Float[Array, "rows act"]) -> Float[Array, " rows"]:
        def member(net: MLP) -> Float[Array, " rows"]:
            return net.scalar(states, actions)

        return jax.vmap(member)(nets).mean(0)

    return jax.vmap(policy)(networks, jnp.broadcast_to(states, (len(actions), *states.shape[-2:])), actions)


def whole_returns(log: Log, networks: MLP) -> NDArray[np.float64]:
    """The discounted return of every episode of the log; where a time limit cut it, what came then is estimated.

    Up to the last row rewards count, and from it on its value Q^mu(s, a), which weighs gamma^(length - 1).
    """
    data, cut = log.data, np.flatnonzero(log.data.timeouts[log.data.episodes[:, 1] - 1])
    returns = log.returns.copy()
    if len(cut) == 0:
        return returns
    last = data.episodes[cut, 1] - 1
    states = jnp.asarray(log.units.states(data.observations[last]))
    actions = jnp.asarray(log.units.actions(data.actions[last]))[None]
    values = np.asarray(values_at(take(networks, slice(0, 1)), states, actions), np.float64)[0]
    values = log.units.centre + log.units.spread * values
    lengths = np.diff(data.episodes[cut], axis=1)[:, 0]
    returns[cut] += log.discount ** (lengths - 1) * (values - data.rewards[last])
    return returns
