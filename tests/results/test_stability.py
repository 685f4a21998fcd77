"""The two stability measures against numbers computed by hand."""

import pytest

from sbac.results.stability import percent_difference, smallest_mean, worst_episode, worst_evaluation


def test_by_hand() -> None:
    assert percent_difference([100, 50, 150]) == pytest.approx(-50.0)
    assert percent_difference([7, 7, 7]) == 0.0
    assert percent_difference([0, 20]) == pytest.approx(-100.0)


def test_negative_means_keep_their_sense() -> None:
    # Returns of a task that only costs: the worst, -300, is half as bad again as the mean, -200.
    assert percent_difference([-100, -200, -300]) == pytest.approx(-50.0)


def test_small_means_are_not_divided_by() -> None:
    assert percent_difference([1.0, -1.0]) is None
    assert percent_difference([3.0, 5.0], smallest=4.0) is None
    assert percent_difference([3.0, 5.0], smallest=3.9) == pytest.approx(-25.0)


def test_over_seeds() -> None:
    found = worst_episode([[100, 50, 150], [10, 10, 10], [0.1, -0.1, 0.0]], smallest=1.0)
    assert found == pytest.approx(-25.0)  # the third seed's mean is too small
    assert worst_episode([[0.0, 0.0]]) is None


def test_only_the_last_ten_evaluations_count() -> None:
    early, late = [-1e6, -1e6, -1e6], [100.0] * 9 + [50.0]
    assert worst_evaluation([early + late]) == pytest.approx(100 * (50 - 95) / 95)


def test_smallest_mean_is_a_share_of_the_references() -> None:
    assert smallest_mean("hopper-medium-v2") == pytest.approx(0.05 * (3234.3 + 20.272305))
    assert smallest_mean("hopper-medium-made") == smallest_mean("hopper-medium-v2")
    assert smallest_mean(None) == 0.0
