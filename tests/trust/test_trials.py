"""Which policy to try next: the rule against a simulated bandit, and the file that it goes on from."""

import json

import numpy as np
import pytest

from sbac.errors import UserError
from sbac.trust.trials import best_tried, candidates, next_label, read_trials
from tests.exporting.policies import make_policy

POLICIES = {label: make_policy("deterministic") for label in ("a", "b")}


def play(means, budget, seed, order=None):
    """A whole trial on a bandit with these means and deviation 1; the label kept, and the returns."""
    rng = np.random.default_rng(seed)
    ranked = [str(i) for i in (order if order is not None else range(len(means)))]
    returns = {label: [] for label in ranked}
    while (label := next_label(ranked, returns, budget)) is not None:
        returns[label].append(float(means[int(label)] + rng.normal()))
    return best_tried(ranked, returns), returns


def test_the_budget_is_kept_and_every_candidate_is_tried() -> None:
    _, returns = play([0.0, 1.0, 2.0], 9, 0)
    counts = [len(own) for own in returns.values()]
    assert sum(counts) == 9 and min(counts) >= 1


def test_few_episodes_go_to_the_best_by_the_estimates() -> None:
    assert candidates(["a", "b", "c", "d"], 4) == ["a", "b"]
    assert candidates(["a", "b", "c", "d"], 1) == ["a"]
    assert candidates(["a", "b"], 100) == ["a", "b"]


def test_it_finds_the_best_of_three_more_often_than_trying_all_alike() -> None:
    means, budget, repeats = [0.0, 0.0, 1.0], 24, 200
    found = np.mean([play(means, budget, seed)[0] == "2" for seed in range(repeats)])
    rng = np.random.default_rng(0)
    alike = np.mean([np.argmax(means + rng.normal(size=(budget // 3, 3)).mean(0)) == 2 for _ in range(repeats)])
    assert found > 0.9 and found >= alike - 0.03


def test_trying_goes_on_from_the_file(tmp_path) -> None:
    rows = [{"label": "a", "returns": [1.0]}, {"label": "b", "returns": [3.0, 5.0]}]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    returns = read_trials(tmp_path, POLICIES, ["a", "b"])
    assert returns == {"a": [1.0], "b": [3.0, 5.0]}
    assert next_label(["a", "b"], returns, 3) is None
    assert best_tried(["a", "b"], returns) == "b"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"label": "c", "returns": [1]}', "unknown label 'c'"),
        ('{"label": "a", "returns": "x"}', "line 1: returns is 'x'; expected a list"),
        ('{"label": "a"}', "returns is missing"),
        ('{"label": "a", "returns": [NaN]}', "not finite"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words) -> None:
    (tmp_path / "trials.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match="trials.jsonl: line 1") as error:
        read_trials(tmp_path, POLICIES, ["a", "b"])
    assert words in str(error.value)
