"""The networks of the learned model: an ensemble for the next state, what is earned, and the end of an episode.

Whether an episode ends is read off the state that a member expects next, and off how far it lies outside the states
that went on.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbac.nn import MLP, Trained, half_cosine
from sbac.nn.gaussian import bounded_log_std
from sbac.nn.typed import in_chunks, jit, loop, take
from sbac.trust.evidence import Effort
from sbac.trust.log import BLOCK, JudgedLog, Resampling, resample

FARTHEST = 10.0
"""In the log's usual changes: how far outside the states that went on a next state counts."""
WIDEST_END = 64
"""Of the layers for the end, which are half as wide as the others: ends are few, and easily learned by heart."""


class MemberNets(eqx.Module):
    """Two networks. `moves`: (s, a) to the change of the state and what is earned, each with the logarithm of its
    deviation; `ends`: (s, a, s') to the logit of an end."""

    moves: MLP
    ends: MLP


class Scales(eqx.Module):
    """Between the log's numbers and those that the networks learn."""

    change: Float[Array, " obs"]
    """The usual change of the state."""
    earned_mean: Float[Array, " earned"]
    earned_std: Float[Array, " earned"]
    earned_low: Float[Array, " earned"]
    """What is watched stays within what the log shows: no share is below 0. The reward is left as it is."""
    earned_high: Float[Array, " earned"]
    low: Float[Array, " obs"]
    """The least and the greatest states that went on."""
    high: Float[Array, " obs"]

    def earned(self, learned: Float[Array, "rows earned"]) -> Float[Array, "rows earned"]:
        return jnp.clip(self.earned_mean + self.earned_std * learned, self.earned_low, self.earned_high)

    def outside(self, states: Float[Array, "*rows obs"]) -> Float[Array, "*rows obs"]:
        """How far states lie outside those that went on."""
        return jnp.clip((states - jnp.clip(states, self.low, self.high)) / self.change, -FARTHEST, FARTHEST)


class Model(eqx.Module):
    """The ensemble."""

    members: MemberNets
    scales: Scales
    draws: bool = eqx.field(static=True)
    """Whether what it expects is drawn from a member's deviation."""
    exact_ends: bool = eqx.field(static=True)
    """Whether the end was learned from true next states, and not from those that the member expects."""
    ends_seen: bool = eqx.field(static=True)
    """Whether the dynamics were learned through the states behind ends."""
    ends_by: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    """The user's rule for an end, of next observations."""
    observation_mean: Float[Array, " obs"] | float = 0.0
    observation_std: Float[Array, " obs"] | float = 1.0

    @property
    def count(self) -> int:
        """Of the members."""
        return len(self.members.ends.biases[0])

    def __call__(
        self,
        states: Float[Array, "rows obs"],
        actions: Float[Array, "rows act"],
        noise: Float[Array, "rows obs"] | float = 0.0,
    ) -> "Outcome":
        def member(member: MemberNets) -> tuple[Array, ...]:
            moves = split(member.moves(states, actions), states.shape[1])
            expected = states + self.scales.change * moves.change
            drawn = expected + self.scales.change * jnp.exp(moves.log_std) * noise if self.draws else expected
            seen = drawn if self.exact_ends else expected
            ends = jax.nn.sigmoid(end_logit(self.scales, member.ends, states, actions, seen))
            if self.ends_by is not None:
                ruled = self.ends_by(drawn * self.observation_std + self.observation_mean).astype(jnp.float32)
                # Dynamics that saw no state behind an end rarely reach one: what was learned of ends still counts.
                ends = ruled if self.ends_seen else jnp.maximum(ruled, ends)
            return drawn, self.scales.earned(moves.earned), ends, moves.change

        drawn, earned, ends, change = jax.vmap(member)(self.members)
        return Outcome(drawn, earned, ends, jnp.sqrt(change.var(0).mean(-1)))


class Outcome(eqx.Module):
    """What each member expects."""

    next_states: Float[Array, "members rows obs"]
    earned: Float[Array, "members rows earned"]
    """The reward, and what the user watches, in the log's units."""
    ends: Float[Array, "members rows"]
    """The probability that the episode ends."""
    disagreement: Float[Array, " rows"]
    """Of the members about the next state: a deviation, in units of the log's own changes."""


class Moves(eqx.Module):
    """The outputs of a member's first network, by their meaning."""

    change: Float[Array, "rows obs"]
    earned: Float[Array, "rows earned"]
    log_std: Float[Array, "rows obs"]
    earned_log_std: Float[Array, "rows earned"]


def split(outputs: Float[Array, "rows outputs"], size: int) -> Moves:
    """`size`: of a state."""
    means, raw = jnp.split(outputs, 2, axis=-1)
    log_stds = bounded_log_std(raw)
    return Moves(means[:, :size], means[:, size:], log_stds[:, :size], log_stds[:, size:])


def end_logit(scales: Scales, net: MLP, states: Array, actions: Array, following: Array) -> Array:
    return net.scalar(states, actions, following, scales.outside(following))


class Lessons(eqx.Module):
    """The rows that members learn from."""

    states: Float[Array, "rows obs"]
    actions: Float[Array, "rows act"]
    change: Float[Array, "rows obs"]
    earned: Float[Array, "rows earned"]
    has_next: Float[Array, " rows"]
    """1 where s' is known: not on terminal rows, unless the log tells what lies behind them."""
    ended: Float[Array, " rows"]


def learn(log: JudgedLog, effort: Effort, seed: int) -> Model:
    """Trains the members on the log, each with its own first weights, batches and episodes."""
    t, behind = log.transitions, log.data.terminal_observations
    following, has_next = t.next_states, t.going_on
    if behind is not None:
        ends = np.flatnonzero(np.asarray(t.going_on) == 0)
        following = following.at[ends].set(jnp.asarray(log.units.states(behind)))
        has_next = jnp.ones_like(has_next)
    change = (following - t.states) * has_next[:, None]
    usual = jnp.sqrt((change**2).sum(0) / jnp.maximum(has_next.sum(), 1)) + 1e-6
    rewards = jnp.asarray(log.data.rewards[log.rows], jnp.float32)[:, None]
    earned = jnp.concatenate([rewards, log.watched], axis=1)
    mean, std = earned.mean(0), earned.std(0)
    std = jnp.where(std > 1e-6 * jnp.maximum(jnp.abs(mean), 1.0), std, 0.0)  # what never changes is not learned
    low, high = earned.min(0).at[0].set(-jnp.inf), earned.max(0).at[0].set(jnp.inf)
    scales = Scales(usual, mean, std, low, high, t.states.min(0), t.states.max(0))
    wanted = jnp.where(std > 0.0, (earned - mean) / jnp.where(std > 0.0, std, 1.0), 0.0)
    lessons = Lessons(t.states, t.actions, change / usual, wanted, has_next, 1.0 - t.going_on)
    exact = effort.model_noise and behind is not None
    drawn = drawn_episodes(log, effort.model_members, seed)
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), effort.model_members)
    members = _learn(effort.model_hidden, effort.batch_size, exact, effort.model_steps, keys, drawn, scales, lessons)
    scale = (jnp.asarray(x, jnp.float32) for x in (log.units.observation_mean, log.units.observation_std))
    return Model(members, scales, effort.model_noise, exact, behind is not None, log.ends_by, *scale)


def drawn_episodes(log: JudgedLog, members: int, seed: int) -> Resampling:
    """The episodes that each member learns from."""
    return resample(log, members, 1, np.random.default_rng(seed))


@partial(jit, static=(0, 1, 2, 3))
def _learn(
    hidden: tuple[int, ...],
    batch_size: int,
    exact_ends: bool,
    steps: int,
    keys: PRNGKeyArray,
    drawn: Resampling,
    scales: Scales,
    lessons: Lessons,
) -> MemberNets:
    size, inputs = lessons.states.shape[1], lessons.states.shape[1] + lessons.actions.shape[1]
    outputs = 2 * (size + lessons.earned.shape[1])
    end_hidden = tuple(min(WIDEST_END, width // 2) for width in hidden[:2])

    def first(key: PRNGKeyArray) -> MemberNets:
        move_key, end_key = jax.random.split(key)
        moves = MLP.create(move_key, inputs, hidden, outputs, normalise=True)
        return MemberNets(moves, MLP.create(end_key, inputs + 2 * size, end_hidden, 1, normalise=True))

    def loss(member: MemberNets, batch: Lessons) -> Float[Array, ""]:
        moves = split(member.moves(batch.states, batch.actions), size)
        moved = surprise(moves.change, moves.log_std, batch.change) * batch.has_next
        gained = surprise(moves.earned, moves.earned_log_std, batch.earned)
        change = batch.change if exact_ends else jax.lax.stop_gradient(moves.change)
        following = batch.states + scales.change * change
        logit = end_logit(scales, member.ends, batch.states, batch.actions, following)
        ended = jax.nn.softplus(logit) - batch.ended * logit  # -log likelihood
        return (moved + gained + ended).mean()

    def one(key: PRNGKeyArray, rows: Int[Array, " most"], count: Int[Array, ""]) -> MemberNets:
        first_key, batch_key = jax.random.split(key)

        def step(i: Array, trained: Trained[MemberNets]) -> Trained[MemberNets]:
            places = jax.random.randint(jax.random.fold_in(batch_key, i), (batch_size,), 0, count)
            batch = take(lessons, rows[places])

            def of_batch(member: MemberNets) -> tuple[Array, None]:
                return loss(member, batch), None

            return trained.minimise(of_batch, 1e-3 * half_cosine(i, steps))[0]

        return loop(steps, step, Trained.create(first(first_key))).model

    return jax.vmap(one)(keys, drawn.rows, drawn.counts)


def surprise(mean: Array, log_std: Array, truth: Array) -> Float[Array, " rows"]:
    """The negative log likelihood times the variance: the mean then learns by its squared error.

    Without this weight a member takes for noise what it has not learned yet, and then learns it no more.
    """
    weight = jax.lax.stop_gradient(jnp.exp(2.0 * log_std))
    return (weight * (0.5 * ((truth - mean) * jnp.exp(-log_std)) ** 2 + log_std)).mean(-1)


@jit
def disagreements(model: Model, states: Array, actions: Array) -> Float[Array, " rows"]:
    """Of the members, at every row of the log."""
    pairs = jnp.concatenate([states, actions], axis=1)
    size = states.shape[1]
    return in_chunks(lambda row: model(row[None, :size], row[None, size:]).disagreement[0], pairs, BLOCK)
