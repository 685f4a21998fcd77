"""Whether the learned model knows the log: its own episodes, acted as it acts, beside what they were."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from sbac.nn import GaussianPolicy
from sbac.trust.behaviour import cloned
from sbac.trust.dynamics import Model, drawn_episodes
from sbac.trust.evidence import Question
from sbac.trust.walking import TOGETHER, Constants, advance, begin, episode_returns, longest, world_of

EPISODES = 40
"""Held-out episodes that each member is asked about."""


@dataclass(frozen=True)
class Knowledge:
    """Episodes that a member did not learn from, as it sees them and as they were: the means of each member."""

    returns: NDArray[np.float64]
    """Undiscounted."""
    true_returns: NDArray[np.float64]
    lengths: NDArray[np.float64]
    true_lengths: NDArray[np.float64]
    error: float
    """The standard error of the mean return of such episodes, which chance alone explains."""

    def facts(self) -> dict[str, float]:
        missed = self.returns - self.true_returns
        return {
            "model_missed": float(missed.mean()),  # the log's own episode, by the model, less what it earned
            "model_missed_spread": float(np.hypot(missed.std(ddof=1), self.error)),
            "model_log_length": float(self.lengths.mean()),
            "log_length": float(self.true_lengths.mean()),
        }


def know(question: Question, model: Model) -> Knowledge:
    """Rolls a clone out that draws its actions as the log does, from first states of held-out episodes.

    An episode that a time limit cut is followed for as many steps as it had.
    """
    log, members = question.log, model.form.members
    drawn, lengths = drawn_episodes(log, model.form, question.seed), np.diff(log.data.episodes, axis=1)[:, 0]
    held_out = [np.arange(log.episodes)] * members
    if drawn is not None:
        held_out = [
            left if len(left := np.flatnonzero(times == 0)) else np.arange(log.episodes) for times in drawn.weights
        ]
    rng = np.random.default_rng(question.seed)
    # As many for every member, so that one program serves all.
    chosen = np.stack([rng.choice(episodes, EPISODES, replace=len(episodes) < EPISODES) for episodes in held_out])
    cut = log.data.timeouts[log.data.episodes[:, 1] - 1]
    steps = np.where(cut, np.minimum(lengths, longest(log)), longest(log))[chosen].reshape(-1)
    world = world_of(question, model, np.repeat(np.arange(members), EPISODES), steps, np.inf)
    units = log.units
    scale = tuple(
        jnp.asarray(x, jnp.float32)
        for x in (units.action_centre, units.action_half, units.action_mean, units.action_std)
    )
    constants = question.once(cloned), scale, jax.random.key(question.seed + 1, impl="threefry2x32")
    states = jnp.asarray(log.starts)[chosen.reshape(-1)][None]
    walk = begin(model, states, clone_acts(constants, states, jnp.int32(0)))
    for time in range(0, int(steps.max()), TOGETHER):
        walk = advance(TOGETHER, clone_acts, constants, world, walk)
        question.reached("the log itself in the learned model", time, int(steps.max()))
        if not bool(walk.running.any()):
            break

    def by_member(values: Any) -> NDArray[np.float64]:
        return np.asarray(values, np.float64).reshape(members, EPISODES).mean(1)

    returns = episode_returns(log)
    error = float(returns.std() / np.sqrt(min(EPISODES, log.episodes)))
    true_lengths = np.minimum(lengths, longest(log))
    return Knowledge(
        by_member(walk.earned[0, :, 0]), by_member(returns[chosen]),
        by_member(walk.lived[0]), by_member(true_lengths[chosen]), error,
    )  # fmt: skip


def clone_acts(constants: Constants, states: Float[Array, "policies rollouts obs"], time: Array) -> Array:
    """The clone's draws, in the networks' units."""
    clone: GaussianPolicy = constants[0]
    (centre, half, mean, std), key = constants[1:]
    return (centre + half * clone(states).sample(jax.random.fold_in(key, time)) - mean) / std
