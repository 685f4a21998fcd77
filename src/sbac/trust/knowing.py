"""Whether the learned model knows the log: its own episodes, acted as it acts, beside what they were.

And what it costs in the model to act otherwise, lastingly.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from sbac.nn import GaussianPolicy
from sbac.nn.typed import in_chunks, jit
from sbac.trust.behaviour import NARROWEST, cloned
from sbac.trust.dynamics import Model, drawn_episodes
from sbac.trust.evidence import Question
from sbac.trust.log import BLOCK, LONGEST, JudgedLog
from sbac.trust.walking import TOGETHER, advance, begin, episode_returns, over, world_of

EPISODES = 20
"""Held-out episodes that each member is asked about; of short ones more."""
MORE = 25
"""Times as many, at most."""
ROWS = 20_000
"""Of the log, at which is asked what the model cannot explain of the rewards."""


@dataclass(frozen=True)
class Knowledge:
    """Episodes that a member did not learn from, as it sees them and as they were: the means of each member."""

    returns: NDArray[np.float64]
    """Undiscounted."""
    true_returns: NDArray[np.float64]
    lengths: NDArray[np.float64]
    true_lengths: NDArray[np.float64]
    ends: NDArray[np.float64]
    """The share of the episodes that end, and not by a time limit."""
    true_ends: NDArray[np.float64]
    rates_missed: NDArray[np.float64]
    """Of each column and rule that is watched: its rate in the model less what it was."""
    error: float
    """The standard error of the mean return of such episodes, which chance alone explains."""
    departure_costs: dict[str, float]
    """What an episode of the clone earns less, undiscounted and discounted, where its mean is off by a constant that is
    drawn once a rollout with the clone's own deviation. Empty for models with noise, where it was not tried."""
    luck: dict[str, float]
    """The deviation of an episode's return, undiscounted and discounted, that chance in its rewards alone makes."""

    @property
    def spurious_ends(self) -> float:
        """By how much more often the model ends the log's episodes than they end, per step."""
        return float(self.ends.sum() / self.lengths.sum() - self.true_ends.sum() / self.true_lengths.sum())

    def facts(self) -> dict[str, float]:
        missed = self.returns - self.true_returns
        return {
            "model_missed": float(missed.mean()),  # the log's own episode, by the model, less what it earned
            "model_missed_spread": float(np.hypot(missed.std(ddof=1), self.error)),
            "model_log_length": float(self.lengths.mean()),
            "log_length": float(self.true_lengths.mean()),
            "model_spurious_ends": self.spurious_ends,
            **self.departure_costs,
            **self.luck,
        }


def know(question: Question, model: Model) -> Knowledge:
    """Rolls held-out episodes out again from their first states, acted as they were.

    At every step the action is the clone's at the state in the model, plus what the episode's own action differed by
    from the clone's at its own state. So a clone that is not what acted cannot be blamed on the model: where the model
    is right, the actions are the log's. An episode that a time limit cut is followed for as many steps as it had.
    Beside them go the clone, and the clone that departs.
    """
    log, members, most = question.log, model.count, question.log.longest
    drawn, lengths = drawn_episodes(log, members, question.seed), np.diff(log.data.episodes, axis=1)[:, 0]
    everyone, each_asked = np.arange(log.episodes), EPISODES * max(1, min(LONGEST // most, MORE))
    held_out = [np.flatnonzero(times == 0) for times in drawn.weights]
    rng = np.random.default_rng(question.seed)
    # As many for every member, so that one program serves all.
    chosen = np.concatenate([rng.choice(left if len(left) else everyone, each_asked) for left in held_out])
    lasted = np.minimum(lengths, most)
    cut = log.data.timeouts[log.data.episodes[:, 1] - 1]
    steps = np.where(cut, lasted, most)[chosen]
    world = world_of(question, model, np.repeat(np.arange(members), each_asked), steps, np.inf)
    actors = 1 if question.effort.model_noise else 3
    apart = np.zeros((actors, len(chosen), log.data.actions.shape[1]), np.float32)
    if actors > 1:
        apart[2] = rng.standard_normal(apart.shape[1:])
    again = jnp.asarray(residuals(question, chosen, lasted[chosen]))
    constants = question.once(cloned), *action_scales(log), again, jnp.asarray(apart)
    states = jnp.tile(jnp.asarray(log.starts)[chosen], (actors, 1, 1))
    walk = begin(model, states, acts_again(constants, states, jnp.int32(0)))
    together = min(TOGETHER, int(steps.max()))
    for time in range(0, int(steps.max()), together):
        walk = advance(together, acts_again, constants, world, walk)
        question.reached("the log itself in the learned model", time, int(steps.max()))
        if over(world, walk):
            break

    def by_member(values: Array | NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(values, np.float64).reshape(members, each_asked).mean(1)

    rates = np.array([each.rates[chosen] for each in log.watches if each.kind != "end"]).reshape(-1, len(chosen))
    true_rates = rates @ lasted[chosen] / lasted[chosen].sum()
    rates_missed = np.asarray(walk.earned[0, :, 1:].sum(0) / walk.lived[0].sum(), np.float64) - true_rates
    returns = episode_returns(log)
    error = float(returns.std() / np.sqrt(min(members * each_asked, log.episodes)))
    costs: dict[str, float] = {}
    if actors > 1:
        for name, earned in (("model_departure", walk.earned), ("model_departure_discounted", walk.discounted)):
            near, departed = np.asarray(earned[1:, :, 0], np.float64).mean(1)
            costs[name] = float(near - departed)
    return Knowledge(
        by_member(walk.earned[0, :, 0]), by_member(returns[chosen]),
        by_member(walk.lived[0]), by_member(lasted[chosen]),
        by_member(1.0 - walk.survived[0]), by_member((~cut & (lengths <= most))[chosen]), rates_missed, error, costs,
        luck(question, model),
    )  # fmt: skip


def luck(question: Question, model: Model) -> dict[str, float]:
    """What the members cannot explain of the rewards that they learned from: no policy earns it or loses it.

    They explain these better than others, if anything, and so less is put down to chance than there is. Where every
    episode has one step no policy has a say in its state, either: all is luck that the action does not explain.
    """
    log, t = question.log, question.log.transitions
    some = np.linspace(0, len(t.states) - 1, min(ROWS, len(t.states))).astype(int)
    expected, given = expected_rewards(model, t.states[some], t.actions[some]), log.data.rewards[log.rows[some]]
    variance = float(((expected - given[:, None]) ** 2).mean())
    if log.longest == 1:
        scales, clone = action_scales(log), question.once(cloned)
        normal = np.random.default_rng(question.seed).standard_normal((len(some), t.actions.shape[1]))
        other = clone_means(clone, scales, t.states[some], jnp.asarray(normal, jnp.float32))
        by_action = 0.5 * (expected - expected_rewards(model, t.states[some], other)).mean(1) ** 2
        variance = float(np.maximum(given.var(dtype=np.float64) - by_action.mean(), 0.0))
    lengths = np.minimum(np.diff(log.data.episodes, axis=1)[:, 0], log.longest)
    square = log.discount**2
    discounted = (1 - square**lengths) / (1 - square)
    return {
        "model_luck": float(np.sqrt(variance * lengths.mean())),
        "model_luck_discounted": float(np.sqrt(variance * discounted.mean())),
    }


def expected_rewards(model: Model, states: Array, actions: Array) -> NDArray[np.float64]:
    """By each member: (rows, members)."""
    size, pairs = states.shape[1], jnp.concatenate([states, actions], axis=1)
    rewards = in_chunks(lambda row: model(row[None, :size], row[None, size:]).earned[:, 0, 0], pairs, BLOCK)
    return np.asarray(rewards, np.float64)


def action_scales(log: JudgedLog) -> tuple[Array, Array, Array, Array]:
    units = log.units
    scales = units.action_centre, units.action_half, units.action_mean, units.action_std
    centre, half, mean, std = (jnp.asarray(scale, jnp.float32) for scale in scales)
    return centre, half, mean, std


def residuals(question: Question, chosen: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """By how much the actions of episodes differ from the clone's: (time, episodes, act), 0 behind their ends."""
    log, clone, scales = question.log, question.once(cloned), action_scales(question.log)
    times = np.arange(int(lengths.max()))
    inside = np.less(times, lengths[:, None])
    rows = log.data.episodes[chosen, :1] + np.where(inside, times, 0)
    states = jnp.asarray(log.units.states(log.data.observations[rows]))
    acted = log.units.actions(log.data.actions[rows])
    apart = np.where(inside[..., None], acted - np.asarray(clone_means(clone, scales, states)), 0.0)
    return apart.swapaxes(0, 1).astype(np.float32)


@jit
def clone_means(
    clone: GaussianPolicy, scales: tuple[Array, ...], states: Float[Array, "*rows obs"], apart: float | Array = 0.0
) -> Array:
    """The clone's mean actions, so many of its deviations off, in the networks' units."""
    (centre, half, mean, std), gaussian = scales, clone(states)
    u = gaussian.mean + apart * jnp.maximum(jnp.exp(gaussian.log_std), NARROWEST)
    return (centre + half * jnp.tanh(u) - mean) / std


def acts_again(constants: Any, states: Float[Array, "actors rollouts obs"], time: Array) -> Array:
    """The first acts as its episode did; all are so many of the clone's deviations off. Within the bounds."""
    clone, centre, half, mean, std, again, apart = constants
    wanted = clone_means(clone, (centre, half, mean, std), states, apart)
    own = jnp.where(time < len(again), again[jnp.minimum(time, len(again) - 1)], 0.0)
    wanted = wanted.at[0].add(own)
    return jnp.clip(wanted, (centre - half - mean) / std, (centre + half - mean) / std)
