"""Behaviour cloning on the small problem: the floor that every other method has to beat."""

from tests.algorithms import harness


def test_cloning_takes_the_mean_of_good_and_bad() -> None:
    harness.assert_in_band("bc", harness.scores("bc", seeds=2, steps=(2000,)))
