"""A learned model of the log's world: an ensemble of networks for the next state, the reward and the end of an episode.

A rollout follows one member from a first state of the log. It is cut where the members disagree about the next state
more than they do at any row of the log; from there on the value is that of fitted Q evaluation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from sbac.nn import MLP, Trained, half_cosine
from sbac.nn.typed import in_chunks, jit, loop, take
from sbac.trust.acting import Act, Actors, Constants
from sbac.trust.evidence import Effort, Evidence, Question
from sbac.trust.fitting import fit, values_at
from sbac.trust.log import BLOCK, JudgedLog

MEMBERS = 5
MOST_ROLLOUTS = 200
"""Of a policy: their first states are spread evenly over the log's episodes."""
NEGLIGIBLE = 0.01
"""Rollouts last until gamma^t falls below this; what comes after counts as what comes after a cut."""
TOGETHER = 50
"""Steps of a rollout that the device takes at a time."""
LONGEST = 1_000
"""Steps that a whole episode has at most: of a log that never ends the beginning must do."""


def evidence(question: Question) -> list[Evidence]:
    """Of each member the gain and what a whole episode earns."""
    rolled, deviation = question.once(rollouts), float(episode_returns(question.log).std())
    return [
        Evidence({"gain": gains, "episode": episodes}, {"model_share": float(share), "episode_deviation": deviation})
        for gains, episodes, share in zip(rolled.gains, rolled.episodes, rolled.shares, strict=True)
    ]


def rollouts(question: Question) -> "Rollouts":
    """Rolls all policies out in a model."""
    model = learn(question.log, question.effort, question.seed)
    t = question.log.transitions
    return roll(question, model, float(disagreements(model, t.states, t.actions).max()))


class Model(eqx.Module):
    """The ensemble. Outputs: the change of the state in units of `change`, the reward, and the logit of an end."""

    nets: MLP
    change: Float[Array, " obs"]

    def __call__(self, states: Float[Array, "rows obs"], actions: Float[Array, "rows act"]) -> "Outcome":
        def member(net: MLP) -> Float[Array, "rows outputs"]:
            return net(states, actions)

        outputs = jax.vmap(member)(self.nets)
        size = states.shape[1]
        return Outcome(
            states + self.change * outputs[..., :size],
            outputs[..., size],
            jax.nn.sigmoid(outputs[..., size + 1]),
            jnp.sqrt(outputs[..., :size].var(0).mean(-1)),
        )


class Outcome(eqx.Module):
    """What each member expects."""

    next_states: Float[Array, "members rows obs"]
    rewards: Float[Array, "members rows"]
    ends: Float[Array, "members rows"]
    """The probability that the episode ends."""
    disagreement: Float[Array, " rows"]
    """Of the members about the next state: a deviation, in units of the log's own changes."""


def learn(log: JudgedLog, effort: Effort, seed: int) -> Model:
    """Trains the members on the log, each with its own first weights and batches."""
    t = log.transitions
    going_on = t.going_on[:, None]
    change = (t.next_states - t.states) * going_on
    scale = jnp.sqrt((change**2).sum(0) / jnp.maximum(going_on.sum(), 1)) + 1e-6
    # Rewards in the log's own units would be of any size: as in fitted Q evaluation, those of q are used.
    wanted = jnp.concatenate([change / scale, t.rewards[:, None]], axis=1)
    inputs = jnp.concatenate([t.states, t.actions], axis=1)
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), MEMBERS)
    return Model(_learn(effort, keys, inputs, wanted, t.going_on), scale)


@partial(jit, static=(0,))
def _learn(
    effort: Effort,
    keys: PRNGKeyArray,
    inputs: Float[Array, "rows inputs"],
    wanted: Float[Array, "rows outputs"],
    going_on: Float[Array, " rows"],
) -> MLP:
    hidden, steps, outputs = effort.model_hidden, effort.model_steps, wanted.shape[1] + 1

    def one(key: PRNGKeyArray) -> MLP:
        first_key, batch_key = jax.random.split(key)

        def step(i: Array, trained: Trained[MLP]) -> Trained[MLP]:
            rows = jax.random.randint(jax.random.fold_in(batch_key, i), (effort.batch_size,), 0, len(inputs))

            def loss(net: MLP) -> tuple[Array, None]:
                out = net(inputs[rows])
                errors = (out[:, :-1] - wanted[rows]) ** 2
                moved = errors[:, :-1].mean(-1) * going_on[rows]  # nothing is known behind an end
                ended = jax.nn.softplus(out[:, -1]) - (1.0 - going_on[rows]) * out[:, -1]  # -log likelihood
                return (moved + errors[:, -1] + ended).mean(), None

            return trained.minimise(loss, 1e-3 * half_cosine(i, steps))[0]

        return loop(steps, step, Trained.create(MLP.create(first_key, inputs.shape[1], hidden, outputs))).model

    return jax.vmap(one)(keys)


@jit
def disagreements(model: Model, states: Array, actions: Array) -> Float[Array, " rows"]:
    """Of the members, at every row of the log."""
    pairs = jnp.concatenate([states, actions], axis=1)
    size = states.shape[1]
    return in_chunks(lambda row: model(row[None, :size], row[None, size:]).disagreement[0], pairs, BLOCK)


class Walk(eqx.Module):
    """Rollouts under way; the axes are (policies, rollouts)."""

    states: Float[Array, "policies rollouts obs"]
    actions: Float[Array, "policies rollouts act"]
    running: Bool[Array, "policies rollouts"]
    alive: Float[Array, "policies rollouts"]
    """The weight of the present step: the discount so far, times the probability that no end came."""
    earned: Float[Array, "policies rollouts"]
    lasted: Float[Array, "policies rollouts"]
    """The steps before it was cut."""


class World(eqx.Module):
    """What a step of a rollout needs besides the walk itself."""

    model: Model
    member: Int[Array, " rollouts"]
    limit: float
    """Of the members' disagreement: beyond, a rollout stops."""
    weight: float
    """Of a step against the one before: the discount, or 1."""
    discount: float
    centre: float
    spread: float


@jit
def _step(world: World, walk: Walk) -> Walk:
    """One step of every rollout, each as its own member sees it. The actions stay those of the old states."""

    def policy(states: Float[Array, "rollouts obs"], actions: Float[Array, "rollouts act"]) -> tuple[Array, ...]:
        expected, its_member = world.model(states, actions), (world.member, jnp.arange(len(states)))
        outcome = expected.next_states[its_member], expected.rewards[its_member], expected.ends[its_member]
        return *outcome, expected.disagreement

    following, rewards, ends, disagreement = jax.vmap(policy)(walk.states, walk.actions)
    finite = jnp.isfinite(following).all(-1) & jnp.isfinite(rewards)
    running = walk.running & finite & (disagreement <= world.limit)
    # The model learned (r - centre (1 - gamma m)) / spread, where m is the probability that the episode goes on.
    raw = world.spread * rewards + world.centre * (1.0 - world.discount * (1.0 - ends))
    return Walk(
        jnp.where(running[..., None], following, walk.states),
        walk.actions,
        running,
        jnp.where(running, walk.alive * world.weight * (1.0 - ends), walk.alive),
        walk.earned + jnp.where(running, walk.alive * raw, 0.0),
        walk.lasted + running,
    )


def _and_act(walk: Walk, actions: Array) -> Walk:
    """The walk with the policies' actions at its states; a rollout that stopped keeps its last one."""
    return replace(walk, actions=jnp.where(walk.running[..., None], actions, walk.actions))


@partial(jit, static=(1,))
def _walk(steps: int, act: Act, constants: list[Constants], world: World, walk: Walk) -> Walk:
    """`steps` steps of all rollouts without leaving the device."""

    def step(_: Array, walk: Walk) -> Walk:
        walk = _step(world, walk)
        return _and_act(walk, act(constants, walk.states))

    return loop(steps, step, walk)


@dataclass(frozen=True)
class Rollouts:
    """What the rollouts of each member say of every policy, in the log's reward units: (policies, members)."""

    gains: NDArray[np.float64]
    """Over the log's mean return from the same first states: what is earned before the cut, and what fitted Q
    evaluation promises behind it, discounted."""
    episodes: NDArray[np.float64]
    """What whole episodes earn, undiscounted. Behind a cut nothing is earned; where the log's rewards are costs, every
    step goes on costing what the log's do: either way a rollout that leaves the data does not gain by it."""
    shares: NDArray[np.float64]
    """Of each policy: the share of the discounted time that its rollouts lasted before they were cut."""


def roll(question: Question, model: Model, limit: float) -> Rollouts:
    """Follows the policies from first states of the log, as long as the members disagree by at most `limit`.

    Every member starts from the same states, so that members differ in what they learned alone.
    """
    log, policies, fitted = question.log, len(question.policies), question.once(fit)
    count = min(MOST_ROLLOUTS // MEMBERS, log.episodes)
    chosen = np.unique(np.linspace(0, log.episodes - 1, count).astype(int))
    starts = np.tile(np.asarray(log.starts)[chosen], (policies, MEMBERS, 1))
    member = jnp.asarray(np.repeat(np.arange(MEMBERS), len(chosen)))

    def walked(what: str, weight: float, steps: int) -> Walk:
        world = World(model, member, limit, weight, log.discount, log.units.centre, log.units.spread)
        return follow(world, question.actors, starts, steps, lambda done: question.reached(what, done, steps))

    def by_member(values: NDArray[np.float64] | Array) -> NDArray[np.float64]:
        return np.asarray(values, np.float64).reshape(policies, MEMBERS, -1).mean(2)

    horizon = int(np.ceil(np.log(NEGLIGIBLE) / np.log(log.discount)))
    walk = walked("rollouts in the learned model", log.discount, horizon)
    after = values_at(take(fitted.networks, slice(1, None)), walk.states, walk.actions)
    behind = np.asarray(walk.alive, np.float64) * log.units.values(after)
    logged = float(fitted.returns[chosen].mean())

    steps = longest(log)
    whole = walked("whole episodes in the learned model", 1.0, steps)
    cut = np.asarray(whole.alive, np.float64) * (steps - np.asarray(whole.lasted, np.float64))
    episodes = np.asarray(whole.earned, np.float64) + cut * min(float(log.data.rewards.mean()), 0.0)
    gains = by_member(walk.earned) + by_member(behind) - logged
    return Rollouts(gains, by_member(episodes), 1.0 - by_member(walk.alive).mean(1))


def follow(
    world: World, actors: Actors, states: NDArray[np.float32], steps: int, reached: Callable[[int], None]
) -> Walk:
    """`steps` steps of all rollouts from these states: (policies, rollouts, observation)."""
    shape = states.shape[:2]
    first = jnp.asarray(states), jnp.asarray(actors.at(states))
    walk = Walk(*first, jnp.ones(shape, bool), jnp.ones(shape), jnp.zeros(shape), jnp.zeros(shape))
    at_a_time = 1 if actors.program is None else TOGETHER
    for time in range(0, steps, at_a_time):
        if actors.program is None:
            walk = _step(world, walk)
            walk = _and_act(walk, jnp.asarray(actors.at(np.asarray(walk.states))))
        else:
            walk = _walk(min(TOGETHER, steps - time), *actors.program, world, walk)
        if time % TOGETHER == 0:
            reached(time)
        if not bool(walk.running.any()):
            break
    return walk


def longest(log: JudgedLog) -> int:
    """The steps of the log's longest episode, and at most `LONGEST`."""
    return min(int(np.diff(log.data.episodes, axis=1).max()), LONGEST)


def episode_returns(log: JudgedLog) -> NDArray[np.float64]:
    """What the log's episodes earn, undiscounted, in as many steps as the rollouts have."""
    earned = np.concatenate([[0.0], np.cumsum(log.data.rewards, dtype=np.float64)])
    first, end = log.data.episodes.T
    return earned[np.minimum(end, first + longest(log))] - earned[first]
