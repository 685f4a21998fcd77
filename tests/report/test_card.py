"""The policy card: what it says of an estimate that can be believed, and of one that cannot."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import Markup

import sbac
from sbac.policy import Policy
from sbac.records import Settings
from sbac.report.card import build_card, largest, members_text, returns_picture
from sbac.runs import DataRecord, Run, RunRecord, Watch
from sbac.trust.behaviour import behaviour_at, clone, compared_rows, departures
from sbac.trust.choice import CHOICE_FORMAT, CandidateRecord, ChoiceRecord, LogRecord
from sbac.trust.log import read_log
from sbac.trust.watching import WatchedRate
from tests.truth.logged import Linear

LABEL = "alpha=2_seed=0"
SAID = {"episodes": 100, "largest": 8.0, "least": 2.0, "highest_possible": 10.0, "lowest_possible": 0.0, "moved": 0.01}
SAID |= {"missed": 0.02, "distance": 0.5, "reach": 0.0, "model_gain": 0.4, "model_share": 0.9}


def policy() -> Policy:
    """a = tanh(1) times the bound everywhere: far from a log that stays near 0."""
    scale = {"observation_mean": np.zeros(3), "observation_std": np.ones(3), "action_low": [-3.0], "action_high": [3.0]}
    arrays = {f"scale/{name}": np.asarray(value, np.float32) for name, value in scale.items()}
    arrays |= {"policy/weights/0": np.zeros((3, 1), np.float32), "policy/biases/0": np.ones(1, np.float32)}
    return Policy(
        "deterministic", arrays, {"algorithm": "sbac", "seed": 0, "label": LABEL, "grid": ["alpha"], "alpha": 2.0}
    )


@pytest.fixture(scope="module")
def log():
    world = Linear.random(0)
    return read_log(sbac.Dataset(**world.log(40, 0), name="<log>"), world.discount)


@pytest.fixture(scope="module")
def run(log):
    about = DataRecord("<log>", "user", None, len(log.data), log.episodes, "0")
    runs: list[Settings] = [{"seed": 0, "alpha": 2.0, "steps": [1, 1]}]
    record = RunRecord(1, "sbac", "quick", [LABEL], runs, Watch(None, 10, 0, None), {}, data=about)
    return Run(record, [policy()], [], [])


def choice(**changes) -> ChoiceRecord:
    row = {"value": 5.0, "low": 4.5, "high": 5.5, "gain": 0.5, "gain_low": 0.2, "gain_high": 0.8, "warnings": []}
    row |= {"set_aside": bool(changes.get("warnings"))} | changes
    candidate = CandidateRecord(LABEL, 0, {"alpha": 2.0}, diagnostics=SAID, **row)
    logged = LogRecord("<log>", "0", 4.5, 40.0, 50.0, 0.25, [3.0, 4.0, 6.5])
    return ChoiceRecord(CHOICE_FORMAT, LABEL, True, "the largest estimated gain", logged, 0.9, [candidate])


class Words(HTMLParser):
    """The text of a page, and its tags in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags = "", list[str]()
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_the_card_says_how_much_better_and_how_sure(run, log) -> None:
    page = Words(build_card(run, log, choice()))
    assert "Discounted, it is expected to earn 5.00 over 4.50: +0.50, with 90 % between +0.20 and +0.80" in page.text
    assert "40 episodes" in page.text and "<log>" in page.text
    assert "gain by the learned model" in page.text
    assert "script" not in page.tags and "svg" in page.tags


def test_the_card_promises_a_whole_episode_and_says_what_is_watched(run, log) -> None:
    rule = WatchedRate("o0 < 1", "rule", 0.02, 0.053, 0.03, 0.076, True)
    rates = [rule, WatchedRate("o1", "column", 5.0, None, None, None, False)]
    record = choice(episode=44.0, episode_low=41.0, episode_high=47.0, watched=rates)
    record = replace(record, log=replace(record.log, steps=50, notes=["cut into blocks"], warnings=["too few rows"]))
    text = Words(build_card(run, log, record)).text
    assert "Use the policy: it is expected to be better than the log." in text
    assert "earn 44.0 an episode where the log earns 40.0: +4.0 (+10 %), with 90 % between +1.0 and +7.0" in text
    assert "in at most 50 steps" in text
    assert "o0 < 1: the log 2.0 % of the steps, the policy 5.3 % [3.0 %, 7.6 %]" in text
    assert "o1: the log 5.000 on average, no estimate for the policy" in text
    assert text.count("the return rises, and so does what is watched") == 1
    for words in ("cut into blocks", "The log: too few rows", "A hidden cause"):
        assert words in text


def test_the_first_row_is_the_log_and_its_value_is_the_one_behind_the_gain(run, log, monkeypatch) -> None:
    drawn: list[tuple[object, ...]] = []
    monkeypatch.setattr("sbac.report.card.returns_picture", lambda *given: drawn.append(given) or Markup("<svg></svg>"))
    text = Words(build_card(run, log, choice())).text
    rows = text[text.index("The policies that were compared") :]
    assert rows.index("the log") < rows.index(LABEL)
    assert "over the log's 4.500" in rows and "mean discounted return is 4.500" in text
    assert "50 steps an episode on average, 25 % of the episodes end early" in rows
    assert "40.00" in rows and drawn == [([3.0, 4.0, 6.5], 4.5, 5.0, (4.5, 5.5), None)]


def test_what_was_done_to_the_log_stands_beside_it(run, log) -> None:
    record = replace(run.record, notes=["missing: <3> values filled"])
    page = Words(build_card(Run(record, run.policies, [], []), log, choice()))
    assert "When it was read: missing: <3> values filled." in page.text


def test_a_warning_stands_in_place_of_an_interval(run, log) -> None:
    bare = {"low": None, "high": None, "gain_low": None, "gain_high": None}
    page = Words(build_card(run, log, choice(warnings=["values <go> beyond"], **bare)))
    assert "Nothing can be promised of the policy from this log alone." in page.text
    assert page.text.count("values <go> beyond") == 2  # on top, and in the table of policies


def test_the_states_of_largest_departure_come_first_and_from_different_episodes(log) -> None:
    model, rows, far = clone(log, (32, 32), 0, steps=500), compared_rows(log), policy()
    distances = departures(log, model, far, rows)
    found = largest(log, model, far, rows, distances)
    assert found[0].distance == pytest.approx(distances.max())
    assert [state.distance for state in found] == sorted((state.distance for state in found), reverse=True)
    assert len({state.row // 50 for state in found}) == len(found) == 5
    np.testing.assert_allclose(found[0].policy_action, 3 * np.tanh(1.0), rtol=1e-5)
    name, value, deviations = found[0].features[0]
    number = log.data.columns["observations"].index(name)
    assert value == log.data.observations[found[0].row, number] and abs(deviations) >= abs(found[0].features[1][2])


def test_a_state_where_both_act_alike_is_no_departure(log) -> None:
    """A log that is always at the bound has hardly a deviation there: a hair counts as many."""
    model, rows, far = clone(log, (32, 32), 0, steps=500), compared_rows(log), policy()
    mean = np.tanh(behaviour_at(model, log.units.states(log.data.observations))[0])
    like = {row.tobytes(): action for row, action in zip(log.data.observations, mean, strict=True)}

    def alike(observations: np.ndarray) -> np.ndarray:
        known = np.array([like[row.tobytes()] for row in observations])
        return (known + 0.015) * log.units.action_half + log.units.action_centre

    distances = np.full(len(rows), 100.0)
    assert len(largest(log, model, far, rows, distances)) == 5
    assert largest(log, model, alike, rows, distances) == []


def test_how_far_the_members_of_a_committee_are_apart() -> None:
    still = Policy("deterministic", policy().arrays | {"policy/biases/0": np.zeros(1, np.float32)}, policy().config)
    (text,) = members_text(sbac.committee([policy(), still]), np.zeros((5, 3), np.float32))
    apart = f"{100 * 3 * np.tanh(1.0) / 2 / 6:.1f} %"  # half of their distance, of the range from -3 to 3
    assert text.startswith(f"Its 2 members are apart by {apart} ") and f"than {apart} in one state in ten" in text
    assert members_text(policy(), np.zeros((5, 3), np.float32)) == []


def test_the_picture_holds_everything() -> None:
    svg = returns_picture([1.0, 2.0, 3.0], 2.0, 9.0, (5.0, 20.0), [10.0, 12.0])
    for name in ("the log's mean", "estimate", "in the environment"):
        assert f">{name}</text>" in svg, name
    ticks = [float(text) for text in re.findall(r">([\d.]+)</text>", svg)]
    assert max(ticks) > 15  # the axis goes as far as the interval


@pytest.mark.parametrize(("estimate", "left"), [(2.2, True), (9.0, False)])
def test_no_line_crosses_a_name(estimate: float, left: bool) -> None:
    svg = returns_picture([1.0, 2.0, 3.0], 2.0, estimate, None, None)
    assert ("text-anchor: end" in svg) == left  # the log's mean has its name on the side that the estimate is not on
