"""The learned model's word on each policy: what rollouts in it earn.

A rollout follows one member from a first state of the log. It is cut where the members disagree about the next state
more than they do at any row of the log; from there on the value is that of fitted Q evaluation.
"""

import math
from dataclasses import dataclass, fields, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from sbac.nn.typed import in_chunks, jit, take
from sbac.trust.dynamics import Model, disagreements, learn
from sbac.trust.evidence import AS_LOGGED, Evidence, Question
from sbac.trust.fitting import fit, values_at
from sbac.trust.knowing import Knowledge, know
from sbac.trust.log import LONGEST
from sbac.trust.walking import Walk, episode_returns, follow, world_of
from sbac.trust.watching import watched_draws

ROLLOUTS = 20
"""Of a policy in each member: their first states are spread evenly over the log's episodes."""
MOST_GROUPS = 50
"""Times as many, at most, where episodes are short."""
COMPARED = 20_000
"""States of the log that rollouts are compared with."""
NEGLIGIBLE = 0.01
"""Rollouts last until gamma^t falls below this; what comes after counts as what comes after a cut."""


def evidence(question: Question) -> list[Evidence]:
    """Of each member the gain and what a whole episode earns."""
    rolled, logged = question.once(rollouts), episode_returns(question.log)
    own = {"log_episode": float(logged.mean()), "episode_deviation": float(logged.std())}
    known = question.once(knowledge)
    # The gain is over what so many of the log's episodes earned, and chance had its part in that.
    baseline_spread = known.luck["model_luck_discounted"] / math.sqrt(rolled.asked)
    shared = own | known.facts() | {"model_baseline_spread": baseline_spread}
    said: list[Evidence] = []
    for number, share in enumerate(rolled.shares):
        sums, steps, ended = rolled.watched[number], rolled.lengths[number], rolled.early[number]
        lasting, ending = ended_as_logged(steps, ended, known.spurious_ends, question.log.longest)
        draws = {"gain": rolled.gains[number], "episode": rolled.episodes[number]}
        draws |= {"episode" + AS_LOGGED: rolled.per_step[number] * lasting}
        draws |= watched_draws(question.log.watches, sums, steps, ended)
        as_logged = watched_draws(question.log.watches, sums - np.outer(steps, known.rates_missed), steps, ending)
        draws |= {quantity + AS_LOGGED: drawn for quantity, drawn in as_logged.items()}
        facts = {"model_share": float(share), "model_strays": float(rolled.strays[number])}
        said.append(Evidence(draws, facts | shared))
    return said


def learned(question: Question) -> "Model":
    return learn(question.log, question.effort, question.seed)


def rollouts(question: Question) -> "Rollouts":
    """Rolls all policies out in a model."""
    model, t = question.once(learned), question.log.transitions
    return roll(question, model, float(disagreements(model, t.states, t.actions).max()))


def knowledge(question: Question) -> Knowledge:
    return know(question, question.once(learned))


def ended_as_logged(
    lengths: NDArray[np.float64], early: NDArray[np.float64], spurious: float, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many of `steps` steps episodes last and how many end early, less the chance of a spurious end at each step.

    lengths, early: the same as they are in the model. Where a rollout was cut, the episode goes on as before.
    """
    ends = np.clip(early / np.maximum(lengths, 1e-9) - spurious, 1e-9, 1.0)
    early = 1.0 - (1.0 - ends) ** steps
    return early / ends, early


@dataclass(frozen=True)
class Rollouts:
    """What the rollouts of each member say of every policy, in the log's units: (policies, members)."""

    gains: NDArray[np.float64]
    """Over the log's mean return from the same first states: what is earned before the cut, and what fitted Q
    evaluation promises behind it, discounted."""
    episodes: NDArray[np.float64]
    """What whole episodes earn, undiscounted. Behind a cut nothing is earned; where the log's rewards are costs, every
    step goes on costing what the log's do: either way a rollout that leaves the data does not gain by it."""
    shares: NDArray[np.float64]
    """Of each policy: the share of the discounted time that its rollouts lasted before they were cut."""
    lengths: NDArray[np.float64]
    """The steps of an episode, before a cut."""
    early: NDArray[np.float64]
    """The share of episodes that end before their last step."""
    per_step: NDArray[np.float64]
    """What one of these steps earns."""
    watched: NDArray[np.float64]
    """(policies, members, watched): what the user watches, summed over these steps."""
    strays: NDArray[np.float64]
    """Of each policy: how far its rollouts are from the log's states early on, in deviations of the log."""
    steps: int
    """That all rollouts took together, one after the other."""
    asked: int
    """First states that rollouts began at."""


def roll(question: Question, model: Model, limit: float) -> Rollouts:
    """Follows the policies from first states of the log, as long as the members disagree by at most `limit`.

    Where episodes are short there are more of them, in groups, as long as all take no more steps than one long episode.
    """
    log, parts, steps = question.log, list[Rollouts](), 0
    groups = max(1, min(MOST_GROUPS, log.episodes // ROLLOUTS)) if 2 * log.longest <= LONGEST else 1
    chosen = np.unique(np.linspace(0, log.episodes - 1, min(groups * ROLLOUTS, log.episodes)).astype(int))
    for number in range(groups):
        parts.append(roll_from(question, model, limit, chosen[number::groups], number, steps))
        steps += parts[-1].steps
        if steps + parts[-1].steps > LONGEST:
            break
    mean = Rollouts(*(np.mean([getattr(part, each.name) for part in parts], 0) for each in fields(Rollouts)))
    return replace(mean, steps=steps, asked=sum(part.asked for part in parts))


def roll_from(
    question: Question, model: Model, limit: float, chosen: NDArray[np.int64], number: int, before: int
) -> Rollouts:
    """From the first states of these episodes; each `number` is another draw of chance; `before`: steps of the others.

    Every member starts from the same states, so that members differ in what they learned alone.
    """
    log, policies, members, fitted = question.log, len(question.policies), model.count, question.once(fit)
    starts = np.tile(np.asarray(log.starts)[chosen], (policies, members, 1))
    member = np.repeat(np.arange(members), len(chosen))
    steps, horizon = log.longest, int(np.ceil(np.log(NEGLIGIBLE) / np.log(log.discount)))
    world = world_of(question, model, member, np.full(len(member), steps), limit, number)
    total = max(steps, horizon)
    walk = follow(
        world,
        question.actors,
        starts,
        total,
        lambda done: question.reached("rollouts in the learned model", before + done, max(total, LONGEST)),
    )

    def by_member(values: NDArray[np.float64] | Array) -> NDArray[np.float64]:
        array = np.asarray(values, np.float64)
        return array.reshape(policies, members, -1, *array.shape[2:]).mean(2)

    after = values_at(take(fitted.networks, slice(1, None)), walk.states, walk.actions)
    behind = np.asarray(walk.alive, np.float64) * np.clip(log.units.values(after), *log.bounds)
    logged = float(fitted.returns[chosen].mean())
    cut = np.asarray(walk.survived, np.float64) * (steps - np.asarray(walk.lasted, np.float64))
    discounted, earned = by_member(walk.discounted), by_member(walk.earned)
    lengths = by_member(walk.lived)
    return Rollouts(
        discounted[..., 0] + by_member(behind) - logged,
        earned[..., 0] + by_member(cut) * min(float(log.data.rewards.mean()), 0.0),
        1.0 - by_member(walk.alive).mean(1),
        lengths,
        1.0 - by_member(walk.survived),
        earned[..., 0] / np.maximum(lengths, 1e-9),
        earned[..., 1:],
        strayed(question, walk),
        int(walk.time),
        len(chosen),
    )


def strayed(question: Question, walk: Walk) -> NDArray[np.float64]:
    """The mean distance of the early states to the nearest of the log's; not a number where no rollout comes so far."""
    states = question.log.transitions.states
    some = states[np.linspace(0, len(states) - 1, min(COMPARED, len(states))).astype(int)]
    apart = np.asarray(nearest(walk.early.reshape(-1, states.shape[1]), some), np.float64).reshape(walk.early.shape[:2])
    alive = np.asarray(walk.early_alive, np.float64)
    reached = alive.sum(1)
    return np.where(reached > 0, (alive * apart).sum(1) / np.where(reached > 0, reached, 1.0), np.nan)


@jit
def nearest(states: Float[Array, "rows obs"], others: Float[Array, "others obs"]) -> Float[Array, " rows"]:
    """How far each state lies from the nearest of others: the root of the mean square over columns."""
    squares = (others**2).sum(-1)
    apart = in_chunks(lambda state: (squares - 2 * others @ state).min() + (state**2).sum(), states, 256)
    return jnp.sqrt(jnp.maximum(apart, 0.0) / states.shape[1])
