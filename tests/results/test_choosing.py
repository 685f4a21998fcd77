"""What is to be expected of so many tries, and differences of means, against answers by hand and by enumeration."""

from itertools import combinations

import numpy as np
import pytest

from sbac.lab.choosing import differences, expected_of_tries, holm, mean_tries


def test_the_best_of_n_by_enumeration() -> None:
    chosen_by, reported = np.array([3.0, 1.0, 4.0, 1.5, 0.2]), np.array([10.0, 50.0, 20.0, 40.0, 30.0])
    for tries, value in enumerate(expected_of_tries(chosen_by, reported), start=1):
        kept = [reported[max(some, key=lambda i: chosen_by[i])] for some in combinations(range(5), tries)]
        assert value == pytest.approx(np.mean(kept))


def test_the_best_of_thousands() -> None:
    """With scores 0 to N - 1 the expected best of n is n (N + 1) / (n + 1) - 1."""
    count = 4000
    scores, tries = np.arange(count, dtype=float), np.arange(1, count + 1)
    np.testing.assert_allclose(expected_of_tries(scores, scores), tries * (count + 1) / (tries + 1) - 1, rtol=1e-9)


def test_a_policy_that_diverged_is_the_last_to_be_kept() -> None:
    assert expected_of_tries([-np.inf, 1.0], [100.0, 1.0])[-1] == 1.0


def test_tasks_count_as_far_as_all_of_them_go() -> None:
    np.testing.assert_allclose(mean_tries([np.array([1.0, 2.0, 3.0]), np.array([3.0, 4.0])]), [2.0, 3.0])


def test_holm_goes_on_from_the_smallest_until_one_fails() -> None:
    assert holm({"a": 0.04, "b": 0.01, "c": 0.02}) == {"a": True, "b": True, "c": True}
    assert holm({"a": 0.04, "b": 0.02, "c": 0.03}) == {"a": False, "b": False, "c": False}
    assert holm({"a": 0.2, "b": 0.001}) == {"a": False, "b": True}


def test_a_difference_of_means_with_tasks_fixed_and_drawn() -> None:
    """Two tasks whose differences are 10 and -2, with next to no spread of seeds: fixed, the mean is 4; drawn, it can
    be that of either task."""
    ours = [np.array([20.0, 20.1, 19.9]), np.array([8.0, 8.1, 7.9])]
    theirs = [np.array([10.0, 10.1, 9.9]), np.array([10.0, 10.1, 9.9])]
    found = differences(ours, {"rival": theirs, "itself": ours})
    rival = found["rival"]
    assert rival.tasks_fixed.value == pytest.approx(4.0)
    assert rival.tasks_fixed.low is not None and rival.tasks_fixed.low > 3.8
    assert rival.tasks_drawn.low is not None and rival.tasks_drawn.low < 0.0
    assert rival.holm and not found["itself"].holm
    assert found["itself"].p_value > 0.5
