"""What is watched beside the reward, against worlds where its rate under a policy is computable."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sbac
from sbac.trust.estimates import conclude, judge
from sbac.trust.evidence import Question
from sbac.trust.fitting import fit, step_rates
from sbac.trust.log import read_log
from sbac.trust.watching import watched_draws, watched_things
from tests.truth.logged import PLACES, Table

from .test_estimates import GAINS, LOGGED, SMALL, sound

RULES, END_STATE = ("o4 > 0.5", "abs(a0) < 0.5 and o0 < 0.5"), 2


def holds(world: Table) -> np.ndarray:
    """The rules at each state and action: (rules, s, a)."""
    states, actions = np.arange(len(world.mu))[:, None], PLACES[None]
    return np.stack([(states == 4) & (actions < 9), (abs(actions) < 0.5) & (states != 0)]).astype(float)


def rates(world: Table, policy: np.ndarray) -> np.ndarray:
    """The discounted share of the steps at which each rule holds."""
    moves = np.einsum("sa,sat->st", policy, world.transitions)
    moves[:, END_STATE] = 0.0
    visits = np.linalg.solve((np.eye(len(moves)) - world.discount * moves).T, np.full(len(moves), 1 / len(moves)))
    return np.einsum("s,sa,rsa->r", visits / visits.sum(), policy, holds(world))


def with_ends(columns: dict) -> dict:
    """The log where an episode ends as soon as it reaches one of the states; what came then is left out."""
    reached = columns["next_observations"][:, END_STATE] > 0.5
    first = np.append(0, np.flatnonzero(columns["timeouts"])[:-1] + 1)
    starts = np.repeat(first, np.diff(np.append(first, len(reached))))
    before = np.cumsum(reached) - reached  # ends so far in the whole log, less those of earlier episodes
    kept = before - before[starts] == 0
    cut = {name: column[kept] for name, column in columns.items()}
    return cut | {"terminals": reached[kept], "timeouts": cut["timeouts"] & ~reached[kept]}


def test_rates_of_a_tabular_world() -> None:
    """By further outputs of the same fits. An episode of the policy lasts 6.9 discounted steps, of the log 3.9."""
    world = Table.random(0)
    log = read_log(sbac.Dataset(**with_ends(world.log(600, 0))), world.discount, RULES)
    choice = world.improved()
    question = Question(log, [world.acts(choice)], SMALL)
    fitted = question.once(fit)
    policy, mu = rates(world, np.eye(3)[choice]), rates(world, world.mu)
    assert np.abs(policy - mu).min() > 0.1  # there is something to tell
    np.testing.assert_allclose(fitted.logged_rates, mu, atol=0.015)
    np.testing.assert_allclose(fitted.rates[0].mean(0), mu, atol=0.02)
    np.testing.assert_allclose(fitted.rates[1].mean(0), policy, atol=0.02)
    estimate = judge(question)[0]
    *watched, end = estimate.watched
    assert [each.name for each in estimate.watched] == [*RULES, "end"] and end.rate is None  # which the model tells
    for each, change in zip(watched, policy - mu, strict=True):
        assert each.rate is not None and each.rate - each.log == pytest.approx(change, abs=0.02)


def test_discounted_sums_as_rates() -> None:
    log: Any = SimpleNamespace(watched=np.empty((0, 2)), discount=0.9)
    assert step_rates(log, np.array([7.0, 2.0, 5.0])) == pytest.approx([0.2, 0.5])  # ten discounted steps, no ends
    once = np.array([7.0, 1.9, 0.0, 0.9])  # an end in the second step: 1 + 0.9 discounted steps
    assert step_rates(log, once) == pytest.approx([1.0, 0.0])


def test_without_anything_watched_the_fits_are_what_they_were() -> None:
    """One output; with ends alone, which the model tells, as well."""
    world = Table.random(0)
    log = read_log(sbac.Dataset(**with_ends(world.log(40, 0))), world.discount, ["end"])
    short = dataclasses.replace(SMALL, steps=(50, 50))
    fitted = fit(Question(log, [world.acts(world.usual())], short))
    assert fitted.networks.weights[-1].shape[-1] == 1 and fitted.rates.shape[-1] == 0


def small_log(**changes) -> sbac.Dataset:
    columns: dict[str, Any] = {
        "observations": np.arange(12.0).reshape(6, 2),
        "actions": np.linspace(-1, 1, 6)[:, None],
        "rewards": np.arange(6.0),
        "terminals": np.array([0, 1, 0, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 0, 1], bool),
        "columns": {"observations": ["glucose [mg/dl]", "x"], "actions": ["dose"]},
        "extras": {"in range": [1, 0, 1, 1, 0, 1]},
    }
    return sbac.Dataset(**(columns | changes))


def test_the_logs_rates() -> None:
    watch = ["`glucose [mg/dl]` < 5", "in range", "reward", "x", "abs(dose) > 0.9", "end", "x"]
    things = {each.name: each for each in watched_things(small_log(), watch)}
    assert list(things) == [*watch[:5], "end"]
    assert [each.rate for each in things.values()] == pytest.approx([0.5, 4 / 6, 2.5, 6.0, 2 / 6, 0.5])
    assert things["in range"].rates == pytest.approx([0.5, 0.75]) and things["end"].rates.tolist() == [1.0, 0.0]
    kinds = ["rule", "column", "column", "column", "rule", "end"]
    assert [each.kind for each in things.values()] == kinds
    assert things["reward"].bounds == (0.0, 5.0) and things["end"].bounds == (0.0, 1.0)


def test_end_is_watched_where_a_log_has_ends_or_it_is_asked_for() -> None:
    endless = small_log(terminals=np.zeros(6, bool))
    assert [each.name for each in watched_things(small_log(), [])] == ["end"]
    assert watched_things(endless, []) == []
    assert [each.rate for each in watched_things(endless, ["end"])] == [0.0]
    one_step_each = small_log(terminals=np.ones(6, bool), timeouts=None)
    assert watched_things(one_step_each, []) == []
    assert [each.rate for each in watched_things(one_step_each, ["end"])] == [1.0]


@pytest.mark.parametrize(
    ("watch", "words"),
    [
        (["glucose"], "unknown column to watch 'glucose'; did you mean 'glucose [mg/dl]'?"),
        (["in_range"], "did you mean 'in range'?"),
        (["y < 3"], "watch 'y < 3': unknown column 'y'"),
        ([3], "watch 3: expected a name"),
    ],
)
def test_what_cannot_be_watched_is_named(watch, words) -> None:
    with pytest.raises(sbac.UserError) as error:
        watched_things(small_log(), watch)
    assert words in str(error.value)


def test_what_whole_episodes_say() -> None:
    things = watched_things(small_log(), ["x > 4", "in range"])
    sums, steps, ended = np.array([[6.0, 2.0], [4.0, 3.0]]), np.array([10.0, 8.0]), np.array([0.25, 0.75])
    draws = watched_draws(things, sums, steps, ended)
    assert draws["rate of x > 4"] == pytest.approx(np.array([0.6, 0.5]) - 4 / 6)
    assert draws["rate of in range"] == pytest.approx(np.array([0.2, 0.375]) - 4 / 6)
    assert draws["rate of end"] == pytest.approx([-0.25, 0.25])


def said(change: float, spread: float = 0.01, **others: float):
    """Facts in which one estimator tells the change of `x > 4`."""
    rate = {"fitted_rate of x > 4": change, "fitted_rate of x > 4_spread": spread, "fitted_rate of x > 4_draws": 3}
    return sound(LOGGED, GAINS, **rate, **others)


def test_the_interval_of_a_rate_and_what_is_worse() -> None:
    rule = watched_things(small_log(), ["x > 4"])[0]  # 4 of 6 steps; 0 and 1 of the episodes'
    given = conclude(said(0.05), watches=[rule]).watched[0]
    assert (given.rate, given.low) == pytest.approx((4 / 6 + 0.05, 4 / 6 + 0.05 - 2.919986 * 0.01))
    wider = conclude(said(0.05, **{"missed rate of x > 4": 0.03}), learned=True, watches=[rule]).watched[0]
    assert given.rate is not None and wider.rate is not None
    half = np.hypot(np.hypot(2.919986 * 0.01, 0.03), 0.2 * rule.rates.std())
    assert wider.low == pytest.approx(wider.rate - half) and wider.high == pytest.approx(wider.rate + half)
    assert [conclude(said(change), watches=[rule]).watched[0].worse for change in (0.05, 0.15)] == [False, True]
    assert not conclude(said(0.15, fitted_gain=-1.0), watches=[rule]).watched[0].worse
    column = dataclasses.replace(rule, kind="column")
    assert not conclude(said(0.15), watches=[column]).watched[0].worse
    beyond = conclude(said(9.0), watches=[rule]).watched[0]
    assert beyond.rate == beyond.high == 1.0
    warned = conclude(said(0.05, reach=3.5), watches=[rule]).watched[0]
    assert warned.rate is not None and warned.low is None and warned.high is None
    assert conclude(sound(), watches=[rule]).watched[0].rate is None
