"""Rollouts in a learned model: each follows one member, and stops where the members disagree too much."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from sbac.nn.typed import jit, loop
from sbac.trust.acting import Act, Actors
from sbac.trust.dynamics import Model
from sbac.trust.evidence import Question
from sbac.trust.log import JudgedLog

TOGETHER = 50
"""Steps of a rollout that the device takes at a time, or those of an episode, if they are fewer."""
OVER = 1e-6
"""The weight of a step, below which it counts no more."""
EARLY = 50
"""Steps after which is asked how far a policy has strayed: sooner all are near their start, later a model drifts."""


class Walk(eqx.Module):
    """Rollouts under way; the axes are (policies, rollouts)."""

    states: Float[Array, "policies rollouts obs"]
    actions: Float[Array, "policies rollouts act"]
    time: Int[Array, ""]
    running: Bool[Array, "policies rollouts"]
    alive: Float[Array, "policies rollouts"]
    """The weight of the present step: the discount so far, times the probability that no end came."""
    discounted: Float[Array, "policies rollouts earned"]
    """What was earned, with these weights."""
    survived: Float[Array, "policies rollouts"]
    """The probability that no end came within the steps of an episode."""
    earned: Float[Array, "policies rollouts earned"]
    """What was earned within these steps, undiscounted."""
    lived: Float[Array, "policies rollouts"]
    """The steps of it that are expected."""
    lasted: Float[Array, "policies rollouts"]
    """Those before it was cut."""
    early: Float[Array, "policies rollouts obs"]
    """Where it is after `World.early` steps."""
    early_alive: Float[Array, "policies rollouts"]
    """The probability that it comes there."""


class World(eqx.Module):
    """What a step of a rollout needs besides the walk itself."""

    model: Model
    member: Int[Array, " rollouts"]
    steps: Int[Array, " rollouts"]
    """Of an episode."""
    limit: float
    """Of the members' disagreement: beyond, a rollout stops."""
    early: int
    """The steps of `EARLY`, or half of the log's longest episode."""
    discount: float
    key: PRNGKeyArray


@jit
def _step(world: World, walk: Walk) -> Walk:
    """One step of every rollout, each as its own member sees it. The actions stay those of the old states."""
    # All policies meet the same chance.
    noise = jax.random.normal(jax.random.fold_in(world.key, walk.time), walk.states.shape[1:])

    def policy(states: Float[Array, "rollouts obs"], actions: Float[Array, "rollouts act"]) -> tuple[Array, ...]:
        expected, its_member = world.model(states, actions, noise), (world.member, jnp.arange(len(states)))
        outcome = expected.next_states[its_member], expected.earned[its_member], expected.ends[its_member]
        return *outcome, expected.disagreement

    following, earned, ends, disagreement = jax.vmap(policy)(walk.states, walk.actions)
    finite = jnp.isfinite(following).all(-1) & jnp.isfinite(earned).all(-1)
    running = walk.running & finite & (disagreement <= world.limit)
    counted, is_early = running & (walk.time < world.steps), walk.time == world.early

    def added(sums: Array, where: Array, weights: Array) -> Array:
        return sums + jnp.where(where[..., None], weights[..., None] * earned, 0.0)

    return Walk(
        jnp.where(running[..., None], following, walk.states),
        walk.actions,
        walk.time + 1,
        running,
        jnp.where(running, walk.alive * world.discount * (1.0 - ends), walk.alive),
        added(walk.discounted, running, walk.alive),
        jnp.where(counted, walk.survived * (1.0 - ends), walk.survived),
        added(walk.earned, counted, walk.survived),
        walk.lived + jnp.where(counted, walk.survived, 0.0),
        walk.lasted + counted,
        jnp.where(is_early, walk.states, walk.early),
        jnp.where(is_early, walk.survived * walk.running, walk.early_alive),
    )


def _and_act(walk: Walk, actions: Array) -> Walk:
    """The walk with the policies' actions at its states; a rollout that stopped keeps its last one."""
    return replace(walk, actions=jnp.where(walk.running[..., None], actions, walk.actions))


@partial(jit, static=(0, 1))
def advance(steps: int, act: Act, constants: Any, world: World, walk: Walk) -> Walk:
    """`steps` steps of all rollouts without leaving the device."""

    def step(_: Array, walk: Walk) -> Walk:
        walk = _step(world, walk)
        return _and_act(walk, act(constants, walk.states, walk.time))

    return loop(steps, step, walk)


def begin(model: Model, states: Array, actions: Array) -> Walk:
    shape, start = states.shape[:2], jnp.int32(0)
    ones, zeros, sums = jnp.ones(shape), jnp.zeros(shape), jnp.zeros((*shape, len(model.scales.earned_mean)))
    running = jnp.ones(shape, bool)
    return Walk(states, actions, start, running, ones, sums, ones, sums, zeros, zeros, states, zeros)


def world_of(
    question: Question, model: Model, member: NDArray[np.int64], steps: NDArray[np.int64], limit: float, chance: int = 0
) -> World:
    """`chance`: another number is another draw of it."""
    key = jax.random.key(question.seed + chance, impl="threefry2x32")
    early = min(EARLY, question.log.longest // 2)
    return World(model, jnp.asarray(member), jnp.asarray(steps), limit, early, question.log.discount, key)


def follow(
    world: World, actors: Actors, states: NDArray[np.float32], steps: int, reached: Callable[[int], None]
) -> Walk:
    """`steps` steps of all rollouts from these states: (policies, rollouts, observation)."""
    walk = begin(world.model, jnp.asarray(states), jnp.asarray(actors.at(states)))
    program = actors.program
    together = min(TOGETHER, int(world.steps.max()))
    at_a_time = 1 if program is None else together
    for time in range(0, steps, at_a_time):
        if program is None:
            walk = _step(world, walk)
            walk = _and_act(walk, jnp.asarray(actors.at(np.asarray(walk.states))))
        else:
            walk = advance(min(together, steps - time), program.act, program.constants, world, walk)
        if time % TOGETHER == 0:
            reached(time)
        if over(world, walk):
            break
    return walk


def over(world: World, walk: Walk) -> bool:
    """Whether nothing that still comes counts: rollouts were cut, or have ended all but surely."""
    weight = jnp.where(walk.time < world.steps, walk.survived, walk.alive)
    return not bool((walk.running & (weight > OVER)).any())


def episode_returns(log: JudgedLog) -> NDArray[np.float64]:
    """What the log's episodes earn, undiscounted, in as many steps as the rollouts have."""
    earned = np.concatenate([[0.0], np.cumsum(log.data.rewards, dtype=np.float64)])
    first, end = log.data.episodes.T
    return earned[np.minimum(end, first + log.longest)] - earned[first]
