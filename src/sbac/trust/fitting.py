"""Fitted Q evaluation of many policies at once: one network for every policy and every member of the bootstrap.

First each member learns Q^mu, the value of the log's own behaviour, on its own episodes. Then every policy's network
starts as a copy of it and learns Q^p, on batches that all policies share; the log's own goes on beside them. So what
differs between Q^p and Q^mu of a member is the policy, and not the first weights, the episodes or the batches. No
minimum is taken over members: the aim is the value, not a bound.

What is watched beside the reward is summed by further outputs of the same networks.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from sbac.errors import UserError
from sbac.nn import MLP, Trained, polyak
from sbac.nn.typed import jit, loop, take
from sbac.trust.evidence import Evidence, Question
from sbac.trust.log import JudgedLog, Summed, Transitions, discounted_sums, resample, summed

RECORDS = 20
"""How often, at most, the values are noted while they are learned."""
BLOCK = 50
"""Steps that the device takes at a time; all lengths of training then share one program."""


class ValueLearner(eqx.Module):
    """Networks and their slow copies, which values are read from; the axes are (policies, members)."""

    online: Trained[MLP]
    target: MLP


class Tables(eqx.Module):
    """All that a step reads, on the device."""

    transitions: Transitions
    rewards: Float[Array, "rows outputs"]
    """The reward and what is watched, in the networks' units."""
    returns: Float[Array, "rows outputs"]
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
    returns: NDArray[np.float64]
    """The discounted return of every episode of the log, by `whole_returns`: their mean is the log's value."""
    logged: NDArray[np.float64]
    """That mean with each replicate's weights."""
    largest: NDArray[np.float64]
    """Of each policy: the largest value at a first state, by the mean over the members."""
    least: NDArray[np.float64]
    networks: MLP
    """(policies, members)"""
    rates: NDArray[np.float64]
    """Of what is watched beside the reward, its discounted mean per step: (policies, replicates, watched)."""
    logged_rates: NDArray[np.float64]
    """The same of the log's episodes."""


def evidence(question: Question) -> list[Evidence]:
    """Of each replicate the gain, a difference of two networks that share their episodes, batches and first weights.

    No policy earns more than the rewards allow, and none less: a gain that says so is taken back to the bound.
    """
    fitted = question.once(fit)
    own = float(fitted.returns.mean())
    least, most = (bound - own for bound in question.log.bounds)
    missed = float((fitted.values[-1, 0] - fitted.logged).mean())
    watches = [each for each in question.log.watches if each.kind != "end"]
    rates_missed = fitted.rates[0].mean(0) - fitted.logged_rates
    missed_by_name = {f"missed {each.quantity}": float(by) for each, by in zip(watches, rates_missed, strict=True)}
    said: list[Evidence] = []
    for number in range(1, len(question.policies) + 1):
        gains = np.clip(fitted.values[:, number] - fitted.values[:, 0], least, most)  # (records, replicates)
        before = gains[max(int(0.8 * len(gains)) - 1, 0)].mean()
        diagnostics = {
            "largest": float(fitted.largest[number]),  # value at a first state
            "least": float(fitted.least[number]),
            "moved": float(gains[-1].mean() - before),  # the gain, in the last fifth of training
            "missed": missed,  # the log's own value by the same networks, less its mean return
            "log": own,
        }
        changes = (fitted.rates[number] - fitted.rates[0]).T
        watched = {each.quantity: change for each, change in zip(watches, changes, strict=True)}
        said.append(Evidence({"gain": gains[-1], "log": fitted.logged} | watched, diagnostics | missed_by_name))
    return said


def fit(question: Question) -> Fitted:
    """Learns the values of all policies; the log's own behaviour is the first."""
    log, effort = question.log, question.effort
    columns = learned_columns(log)
    sample = resample(log, effort.replicates, effort.folds, np.random.default_rng(question.seed))
    after, first = question.actors.tables()
    net_key, log_key, policy_key = jax.random.split(jax.random.key(question.seed, impl="threefry2x32"), 3)
    members, sizes = len(sample.counts), log.starts.shape[1] + after.shape[2]

    def network(key: PRNGKeyArray) -> MLP:
        return MLP.create(key, sizes, effort.hidden, len(columns), normalise=True, last_scale=0.1)

    nets = jax.vmap(jax.vmap(network))(jax.random.split(net_key, (1, members)))
    learner = ValueLearner(jax.vmap(jax.vmap(Trained[MLP].create))(nets), nets)
    rewards = jnp.asarray(np.stack([column.rewards for column in columns], 1), jnp.float32)
    returns = jnp.asarray(np.stack([column.returns for column in columns], 1), jnp.float32)
    tables = Tables(
        log.transitions, rewards, returns, after, log.starts, first, sample.rows, sample.counts, sample.reading
    )
    log_tables = replace(tables, after=after[:1], first=first[:1])
    log_blocks, blocks = (max(1, steps // BLOCK) for steps in effort.steps)
    for block in range(log_blocks):
        rates = Rates(returns_share(block / log_blocks), effort.learning_rate, effort.target_rate)
        learner = advance(effort.batch_size, log.discount, rates, log_tables, learner, log_key, block * BLOCK)
        question.reached("the log's own value", block + 1, log_blocks)
    learner = take(learner, np.zeros(len(after), int))  # a copy for every policy
    records: list[np.ndarray] = []
    noted = {round(blocks * (i + 1) / RECORDS) for i in range(RECORDS)}
    for block in range(blocks):
        rates = Rates(0.0, effort.learning_rate * half_cosine_at(block / blocks), effort.target_rate)
        learner = advance(effort.batch_size, log.discount, rates, tables, learner, policy_key, block * BLOCK)
        if block + 1 in noted:
            records.append(np.asarray(starting_values(tables, learner.target), np.float64))
        question.reached("the policies' values", block + 1, blocks)
    by_member = np.stack(records) * [column.spread for column in columns] + [column.centre for column in columns]
    sums = by_member.reshape(*by_member.shape[:2], -1, sample.folds, len(columns)).mean(-2)
    values = sums[..., 0]
    if not np.isfinite(values).all():
        raise UserError(f"dataset {log.data.name}: the values do not stay finite; look at it with sbac data check")
    at_starts = log.units.values(values_at(learner.target, log.starts, first))
    weights = sample.weights / sample.weights.sum(1, keepdims=True)
    whole = np.stack([whole_returns(log, learner.target, column, i) for i, column in enumerate(columns)], 1)
    return Fitted(
        values, whole[:, 0], weights @ whole[:, 0], at_starts.max(1), at_starts.min(1), learner.target,
        step_rates(log, sums[-1]), step_rates(log, whole.mean(0)),
    )  # fmt: skip


def learned_columns(log: JudgedLog) -> list[Summed]:
    """The reward; where something is watched its columns; and, where episodes end, their ends."""
    watched = [each.values for each in log.watches]
    columns = [log.data.rewards, *(watched if log.watched.shape[1] else [])]
    return [summed(log.data, column, log.discount, log.rows) for column in columns]


def step_rates(log: JudgedLog, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Discounted sums of (..., reward, watched, ends) as means per step of what is watched.

    An episode that ends after T steps has (1 - gamma^T) / (1 - gamma) discounted ones, and gamma^T is gamma times the
    discounted sum of its ends.
    """
    watched = log.watched.shape[1]
    ended = sums[..., -1:] if sums.shape[-1] > 1 + watched else 0.0
    return (1 - log.discount) * sums[..., 1 : 1 + watched] / (1 - log.discount * ended)


class Rates(NamedTuple):
    """What changes from block to block, and between efforts."""

    returns: float
    """The share of the log's own returns in the target."""
    learning: float
    target: float


def returns_share(done: float) -> float:
    """The log's returns lead the way in the first half: values then need not travel through a whole episode."""
    return max(0.0, 1.0 - 2.0 * done)


def half_cosine_at(done: float) -> float:
    """The factor of a learning rate that falls from 1 to 0."""
    return 0.5 * (1.0 + math.cos(math.pi * done))


@partial(jit, static=(0,))
def advance(
    batch_size: int,
    discount: float,
    rates: Rates,
    tables: Tables,
    learner: ValueLearner,
    key: PRNGKeyArray,
    start: int,
) -> ValueLearner:
    """A block of steps of all networks. A member's batches are the same for all policies."""

    def step(i: Array, learner: ValueLearner) -> ValueLearner:
        bits = jax.random.bits(jax.random.fold_in(key, start + i), (len(tables.counts), batch_size), jnp.uint32)
        drawn = (bits % tables.counts[:, None].astype(jnp.uint32)).astype(jnp.int32)
        rows = jnp.take_along_axis(tables.rows, drawn, axis=1)

        def policy(learner: ValueLearner, after: Array) -> ValueLearner:
            def member(learner: ValueLearner, rows: Array) -> ValueLearner:
                batch = take(tables.transitions, rows), tables.rewards[rows], tables.returns[rows]
                return td_step(learner, *batch, after[rows], discount, rates)

            return jax.vmap(member)(learner, rows)

        return jax.vmap(policy)(learner, tables.after)

    return loop(BLOCK, step, learner)


def td_step(
    learner: ValueLearner,
    batch: Transitions,
    rewards: Float[Array, "batch outputs"],
    returns: Float[Array, "batch outputs"],
    next_actions: Float[Array, "batch act"],
    discount: float | Float[Array, ""],
    rates: Rates,
) -> ValueLearner:
    """One step of one network towards r + gamma q'(s', a'), in part towards the log's return."""
    ahead = learner.target(batch.next_states, next_actions)
    bootstrapped = rewards + discount * batch.going_on[:, None] * ahead
    wanted = (1.0 - rates.returns) * bootstrapped + rates.returns * returns

    def loss(net: MLP) -> tuple[Array, None]:
        return ((net(batch.states, batch.actions) - wanted) ** 2).sum(-1).mean(), None

    online, _ = learner.online.minimise(loss, rates.learning)
    return ValueLearner(online, polyak(learner.target, online.model, rates.target))


@jit
def starting_values(tables: Tables, networks: MLP) -> Float[Array, "policies members outputs"]:
    """The mean of each network's outputs at the first states that its member is read at."""

    def policy(nets: MLP, first: Float[Array, "episodes act"]) -> Float[Array, "members outputs"]:
        def member(net: MLP, reading: Float[Array, " episodes"]) -> Float[Array, " outputs"]:
            return (reading[:, None] * net(tables.starts, first)).sum(0)

        return jax.vmap(member)(nets, tables.reading)

    return jax.vmap(policy)(networks, tables.first)


@partial(jit, static=(3,))
def values_at(
    networks: MLP,
    states: Float[Array, "*policies rows obs"],
    actions: Float[Array, "policies rows act"],
    output: int = 0,
) -> Float[Array, "policies rows"]:
    """Each policy's q at its own actions, by the mean of its members; at states of its own, or at shared ones.

    `output`: 0 of the reward, else of what is watched.
    """

    def policy(nets: MLP, states: Float[Array, "rows obs"], actions: Float[Array, "rows act"]) -> Float[Array, " rows"]:
        def member(net: MLP) -> Float[Array, " rows"]:
            return net(states, actions)[..., output]

        return jax.vmap(member)(nets).mean(0)

    return jax.vmap(policy)(networks, jnp.broadcast_to(states, (len(actions), *states.shape[-2:])), actions)


def whole_returns(log: JudgedLog, networks: MLP, column: Summed, output: int) -> NDArray[np.float64]:
    """The discounted sum of a column in every episode of the log; where a time limit cut it, what came is estimated.

    Up to the last row the log counts, and from it on its value Q^mu(s, a), which weighs gamma^(length - 1).
    """
    data, cut = log.data, np.flatnonzero(log.data.timeouts[log.data.episodes[:, 1] - 1])
    returns = discounted_sums(data, column.values, log.discount)[data.episodes[:, 0]]
    if len(cut) == 0:
        return returns
    last = data.episodes[cut, 1] - 1
    states = jnp.asarray(log.units.states(data.observations[last]))
    actions = jnp.asarray(log.units.actions(data.actions[last]))[None]
    q = values_at(take(networks, slice(0, 1)), states, actions, output)[0]
    values = column.centre + column.spread * np.asarray(q, np.float64)
    lengths = np.diff(data.episodes[cut], axis=1)[:, 0]
    returns[cut] += log.discount ** (lengths - 1) * (values - column.values[last])
    return returns
