"""Estimates against worlds whose values are known, and what makes them doubtful."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbac
from sbac.trust.behaviour import clone, departures
from sbac.trust.doubts import RULES, doubts
from sbac.trust.estimates import OPTIMISM, UNKNOWN, combined, conclude, fqe, judge
from sbac.trust.evidence import Effort, Facts, Question, summary
from sbac.trust.fitting import evidence, fit
from sbac.trust.log import read_log
from tests.truth.logged import Linear, Table

NOTES = Path(__file__).parents[2] / "lab-notes"
SMALL = Effort(3, 2, (32, 32), 64, (1_000, 3_000), 2e-3, 0.1)


@pytest.fixture(scope="module")
def table():
    world = Table.random(0)
    return world, read_log(sbac.Dataset(**world.log(400, 0)), world.discount)


@pytest.fixture(scope="module")
def judged(table):
    world, log = table
    choices = [world.usual(), world.improved()]
    question = Question(log, [world.acts(choice) for choice in choices], SMALL)
    return world, choices, question, judge(question)


def test_values_of_a_tabular_world(judged) -> None:
    world, choices, _, estimates = judged
    for choice, estimate in zip(choices, estimates, strict=True):
        truth = world.value(np.eye(3)[choice])
        assert estimate.value == pytest.approx(truth, rel=0.02)
        assert estimate.gain == pytest.approx(truth - world.value(world.mu), abs=0.02 * truth)
        assert estimate.warnings == []
        assert estimate.gain_low < estimate.gain < estimate.gain_high


def test_value_less_log_is_gain_on_a_log_that_a_time_limit_cuts() -> None:
    """Episodes of 12 steps at a discount of 0.9: what comes behind the cut is a quarter of the value."""
    world = dataclasses.replace(Table.random(0), length=12)
    log = read_log(sbac.Dataset(**world.log(800, 0)), world.discount)
    estimate = judge(Question(log, [world.acts(world.usual())], SMALL))[0]
    truth, baseline = world.value(world.mu), estimate.diagnostics["log"]
    assert log.returns.mean() < 0.8 * truth  # what the log holds is far from what the policies are compared with
    assert baseline == pytest.approx(truth, rel=0.03)
    assert estimate.value - baseline == pytest.approx(estimate.gain, rel=1e-9)


def test_the_logs_own_value_is_its_mean_return(judged) -> None:
    world, _, question, _ = judged
    fitted = question.once(fit)  # what the estimates were made with
    assert fitted.logged.mean() == pytest.approx(world.value(world.mu), rel=0.02)
    assert fitted.values[-1, 0].mean() == pytest.approx(world.value(world.mu), rel=0.02)


@pytest.mark.slow
def test_values_of_a_linear_gaussian_world_within_two_percent() -> None:
    world = Linear.random(0)
    effort = Effort(4, 2, (64, 64), 256, (4_000, 4_000), 1e-3, 0.1)
    log = read_log(sbac.Dataset(**world.log(1_000, 0)), world.discount)
    gains = [world.better(share) for share in (0.0, 0.3)]
    estimates = judge(Question(log, [world.acts(gain) for gain in gains], effort))
    for gain, estimate in zip(gains, estimates, strict=True):
        assert estimate.value == pytest.approx(world.value(gain), rel=0.02)


def test_one_seed_gives_one_answer(table) -> None:
    world, log = table
    short = dataclasses.replace(SMALL, steps=(50, 50))
    policies = [world.acts(world.usual()), world.acts(world.rare())]
    first, second = ([e.diagnostics for e in judge(Question(log, policies, short, 3))] for _ in range(2))
    assert first == second


def test_distance_is_in_the_logs_own_deviations() -> None:
    world = Linear.random(0)
    log = read_log(sbac.Dataset(**world.log(200, 0)), world.discount)
    model = clone(log, (32, 32), 0, steps=1_500)
    rows = np.arange(0, len(log.data), 7)
    at_mean = departures(log, model, world.acts(world.gain), rows)

    def shifted(observations):
        return world.acts(world.gain)(observations) + 2 * world.deviation

    assert at_mean.mean() < 0.3
    assert departures(log, model, shifted, rows).mean() == pytest.approx(2.0, rel=0.15)


# --- Doubts -----------------------------------------------------------------------------------------------------------

SOUND: dict[str, float] = {
    "episodes": 100,
    "largest": 8.0,
    "least": 2.0,
    "highest_possible": 10.0,
    "lowest_possible": 0.0,
    "moved": 0.01,
    "missed": 0.02,
    "return_deviation": 1.0,
    "distance": 0.5,
    "reach": 0.0,
}
LOGGED, GAINS = np.array([4.0, 4.1, 3.9]), np.array([1.0, 1.1, 0.9])  # deviations of 0.1


def sound(logged=LOGGED, gains=GAINS, **changes: float) -> Facts:
    """Facts that nothing speaks against, but for these changes."""
    said = summary("fitted_log", np.asarray(logged)) | summary("fitted_gain", np.asarray(gains))
    return Facts(SOUND | {"log": float(np.mean(logged))} | said | changes)


@pytest.mark.parametrize("learned", [True, False])
def test_deductions_are_counted_in_what_a_lasting_departure_costs_where_that_is_more(learned: bool) -> None:
    facts = sound(distance=0.5, return_deviation=2.0, episode_deviation=10.0)
    plain = conclude(facts, learned)
    for cost, unit in ((1.5, 2.0), (8.0, 8.0), (-3.0, 2.0), (float("nan"), 2.0)):
        found = conclude(Facts(facts | {"model_departure_discounted": cost}), learned)
        assert found.gain == plain.gain and found.warnings == plain.warnings
        if unit > 2.0 and learned:
            assert found.diagnostics["optimism"] == pytest.approx(0.5 * unit)
            assert found.gain_low < plain.gain_low - 0.5 * (unit - 2.0) and found.gain_high > plain.gain_high
        else:
            assert (found.gain_low, found.gain_high) == (plain.gain_low, plain.gain_high)


def test_what_chance_adds_to_rewards_is_not_at_stake() -> None:
    """Of a deviation of 5 chance makes 4: deductions are counted in the other 3, or in what a departure costs."""
    facts = sound(distance=0.5, return_deviation=5.0)
    whole, known = conclude(facts, True), conclude(Facts(facts | {"model_luck_discounted": 4.0}), True)
    assert whole.diagnostics["optimism"] == pytest.approx(2.5) and known.diagnostics["optimism"] == pytest.approx(1.5)
    assert whole.gain == known.gain and whole.gain_low < known.gain_low < known.gain_high < whole.gain_high
    more = conclude(Facts(facts | {"model_luck_discounted": 6.0, "model_departure_discounted": 2.0}), True)
    assert more.diagnostics["optimism"] == pytest.approx(1.0)
    assert conclude(Facts(facts | {"model_luck_discounted": 6.0}), True).diagnostics["optimism"] == 0.0


def test_chance_in_what_the_compared_episodes_earned_widens_the_interval_of_the_gain() -> None:
    facts = sound(gains=np.ones(3), missed=0.0)
    found = conclude(Facts(facts | {"model_baseline_spread": 0.5}))
    assert found.gain_high - found.gain == pytest.approx(1.645 * 0.5, rel=1e-3)
    assert conclude(facts).gain_high == pytest.approx(1.0)


def test_values_beyond_the_bound_are_taken_back_to_it() -> None:
    """Where every step earns 1, a policy that never fails has the largest value there is, and networks say more."""
    rng, lengths = np.random.default_rng(0), np.full(30, 10)
    ends = np.cumsum(lengths) - 1
    terminals = np.isin(np.arange(lengths.sum()), ends)
    states, actions = rng.normal(size=(300, 1)), rng.uniform(-1, 1, (300, 1))
    data = sbac.Dataset(observations=states, actions=actions, rewards=np.ones(300), terminals=terminals)
    question = Question(read_log(data, 0.9), [lambda s: 0 * s], Effort(2, 2, (16,), 32, (50, 50), 1e-3, 0.1))
    fitted = question.once(fit)
    own = fitted.returns.mean()
    for value, kept in ((12.0, 10.0), (9.0, 9.0), (-3.0, 0.0)):
        values = np.stack([fitted.values[:, 0], fitted.values[:, 0] + value - own], 1)
        question._results[fit] = dataclasses.replace(fitted, values=values)
        said = evidence(question)[0]
        np.testing.assert_allclose(said.draws["gain"] + own, kept)
        assert said.diagnostics["moved"] == pytest.approx(0.0)
    assert not doubts(sound(largest=14.9, least=-4.9)) and doubts(sound(largest=15.1))


@pytest.mark.parametrize(
    ("rule", "changes", "words"),
    [
        ("few episodes", {"episodes": 5}, "the log has 5 episodes"),
        ("beyond the rewards", {"largest": 16.0}, "values from 2 to 16 go beyond what the rewards allow, 0 to 10"),
        ("beyond the rewards", {"least": -6.0}, "beyond what the rewards allow"),
        ("episode beyond the rewards", {"model_episode": 116.9, "lowest_episode": 0.0, "highest_episode": 60.0},
         "a whole episode goes beyond what the log's rewards and its longest episode allow, 0 to 60"),
        ("still moving", {"moved": -0.3}, "still moving at the end of training, by -0.3"),
        ("far from the log", {"distance": 4.0, "reach": 9.0}, "acts 4.0 of the log's deviations"),
        ("far at times", {"reach": 3.5}, "in one state of ten"),
        ("leaves the log", {"model_share": 0.6}, "leaves what the log shows after 60 % of the discounted time"),
        ("ends early", summary("model_episode", np.array([50.0, 45.0, 55.0])) | summary("model_gain", GAINS)
         | {"log_episode": 100.0, "episode_deviation": 60.0}, "its whole episodes earn 50, those of the log 100"),
        ("unconfirmed by model", {"model_gain": 3.0, "model_gain_spread": 0.0},
         "the learned model puts the gain at 3, fitted Q evaluation at 1: they do not confirm"),
    ],
)  # fmt: skip
def test_each_rule_gives_its_warning_and_takes_the_interval_away(rule, changes, words) -> None:
    facts = sound(**changes)
    assert conclude(sound()).has_interval
    assert [each.name for each in RULES if each.holds(facts)] == [rule]
    estimate = conclude(facts)
    assert len(estimate.warnings) == 1 and words in estimate.warnings[0]
    assert not estimate.has_interval and estimate.low == -math.inf


def test_values_that_still_move_are_no_reason_where_the_model_leads() -> None:
    moving = {"moved": -0.3, "model_gain": 1.05, "model_gain_spread": 0.1, "model_gain_draws": 3.0}
    assert conclude(sound(LOGGED, GAINS, **moving)).has_interval
    lost = {"model_missed": 50.0, "model_missed_spread": 1.0, "episode_deviation": 1.0, "model_episode_spread": 0.0}
    alone = conclude(sound(LOGGED, GAINS, **moving, **lost))  # the model is left out
    assert len(alone.left_out) == 1 and "still moving" in alone.warnings[0]


def committed(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (NOTES / name).read_text().splitlines()]


def reasons_against(row: dict[str, Any]) -> list[str]:
    """By the present rules; as if the replicates told nothing of how sure they are."""
    said = {name: value for name, value in row["diagnostics"].items() if value is not None}
    return doubts(Facts(said, fitted_gain_spread=math.inf, fitted_gain_draws=2))


def test_no_estimate_from_25_demonstrations_is_believed() -> None:
    """Ten policies of door-human: all gains lie too high, and four lower bounds above 0, where the truth is below."""
    rows = committed("door-human/select.jsonl")
    assert len(rows) == 10 and all(row["true_gain"] < 0 < row["gain"] for row in rows)
    assert sum(row["gain_low"] > 0 for row in rows) == 4
    for row in rows:
        assert any("leaves what the log shows" in reason for reason in reasons_against(row))


def test_of_policies_from_25_episodes_most_that_fail_are_set_aside() -> None:
    """Six small logs, 36 policies, four of which fail."""
    rows = committed("trust/few-episodes.jsonl")
    doubted = [bool(reasons_against(row)) for row in rows]
    assert sum(row["true_gain"] < 0 for row in rows) == 4 and sum(doubted) == 5
    assert sum(doubt and row["true_gain"] < 0 for row, doubt in zip(rows, doubted, strict=True)) == 3
    sound = [row for row, doubt in zip(rows, doubted, strict=True) if not doubt]
    assert sum(row["gain_low"] < row["true_gain"] < row["gain_high"] for row in sound) == 30
    assert all(row["true_gain"] > 0 for row in sound if row["gain_low"] > 0)


@pytest.mark.parametrize("name", ["trust/development.jsonl", "trust/table.jsonl", "trust/fresh.jsonl"])
def test_the_policies_of_large_logs_stay_in_what_the_log_shows(name: str) -> None:
    """Or something else speaks against them as well: so this warning costs nothing there."""
    for row in committed(name):
        reasons = reasons_against(row)
        leaves = [reason for reason in reasons if "leaves what the log shows" in reason]
        assert not leaves or len(reasons) > 1, row["label"]


def test_the_interval_is_students_widened_by_what_is_known_to_be_off() -> None:
    exact, missed = conclude(sound(missed=0.0)), conclude(sound(missed=0.3))
    assert exact.value == pytest.approx(5.0)
    assert exact.gain_high - exact.gain == pytest.approx(2.919986 * 0.1)
    assert missed.gain_high - missed.gain == pytest.approx(math.hypot(2.919986 * 0.1, 0.3))


def test_the_model_leads_and_what_others_differ_by_widens_the_interval() -> None:
    facts = sound(missed=0.0, model_gain=1.4, model_gain_spread=0.2)
    assert combined(facts, "gain") == pytest.approx((1.4, 0.2, 0.2))
    estimate = conclude(facts)
    assert estimate.gain == pytest.approx(1.4)
    assert estimate.gain_high - estimate.gain == pytest.approx(math.hypot(2.919986 * 0.2, 0.2))


def test_the_promise_lies_between_the_model_and_the_model_put_right_as_the_log_ends() -> None:
    said = summary("model_episode", np.array([290.0, 310.0])) | summary(
        "model_episode_as_logged", np.array([340.0, 380.0])
    )
    facts = sound(LOGGED, GAINS, **said, episode_deviation=40.0)
    assert combined(facts, "episode") == pytest.approx((330.0, 1.5 * math.sqrt(200.0), 60.0))
    estimate = conclude(facts)
    assert estimate.episode == pytest.approx(330.0)
    assert estimate.episode_high - 330.0 == pytest.approx(math.hypot(6.313752 * 1.5 * math.sqrt(200.0), 60.0))


def test_what_the_model_gives_the_log_itself_too_much_is_taken_off() -> None:
    """A world whose disturbances cost 1 an episode, a model without them: what does as the log does gains nothing."""
    said = {"log_episode": -2.5, "model_episode": -1.5, "model_episode_spread": 0.1, "model_episode_draws": 5}
    plain, generous = conclude(sound(LOGGED, GAINS, **said)), conclude(sound(LOGGED, GAINS, **said, model_missed=1.0))
    assert generous.episode == pytest.approx(-2.5)
    assert generous.episode_high == pytest.approx(plain.episode_high - 1.0)
    assert conclude(sound(LOGGED, GAINS, **said, model_missed=-1.0)).episode == plain.episode


def test_a_policy_that_was_learned_from_the_log_has_a_wider_interval() -> None:
    learned = conclude(sound(missed=0.0, return_deviation=2.0), learned=True)
    half = math.hypot(2.919986 * 0.1, UNKNOWN * 2.0)
    assert learned.gain_high - learned.gain == pytest.approx(half)
    assert learned.gain - learned.gain_low == pytest.approx(half + OPTIMISM * SOUND["distance"] * 2.0)


def test_a_whole_episode_has_an_interval_built_as_the_gains() -> None:
    said = {"model_episode": 300.0, "model_episode_spread": 10.0, "model_episode_draws": 5, "episode_deviation": 40.0}
    given, learned = conclude(sound(**said)), conclude(sound(**said), learned=True)
    half = 2.131847 * 10.0
    assert (given.episode_low, given.episode_high) == pytest.approx((300 - half, 300 + half))
    wider = math.hypot(half, UNKNOWN * 40.0)
    assert learned.episode_high == pytest.approx(300 + wider)
    assert learned.episode_low == pytest.approx(300 - wider - OPTIMISM * SOUND["distance"] * 40.0)
    warned = conclude(sound(**said, reach=3.5))
    assert warned.episode == 300 and (warned.episode_low, warned.episode_high) == (-math.inf, math.inf)
    assert math.isnan(conclude(sound()).episode_low)


def test_nothing_is_promised_that_cannot_be() -> None:
    """In whatever scale rewards are."""
    for scale in (1e-6, 1.0, 1e6):
        said = {"model_episode": 58.0 * scale, "model_episode_spread": 4.0 * scale, "model_episode_draws": 5}
        bounds = {"lowest_episode": -60.0 * scale, "highest_episode": 60.0 * scale}
        estimate = conclude(sound(LOGGED, GAINS, **said, **bounds))
        assert estimate.episode_high == 60.0 * scale and estimate.episode_low > 0
        for episode in (70.0, -70.0):
            beyond = conclude(sound(LOGGED, GAINS, **said | {"model_episode": episode * scale}, **bounds))
            assert math.isnan(beyond.episode) and not beyond.has_interval


def test_unknown_names_are_named(table) -> None:
    data = sbac.Dataset(**Table.random(0).log(30, 0))
    with pytest.raises(sbac.UserError, match="unknown effort 'quik'"):
        fqe(data, lambda x: np.zeros((len(x), 1)), effort="quik")
    with pytest.raises(sbac.UserError, match="unknown estimator 'modle'"):
        judge(Question(table[1], [], SMALL), ["modle"])
