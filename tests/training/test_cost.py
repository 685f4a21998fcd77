"""A step costs what it did when its figures were committed, by XLA's own count."""

import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import cost

COMMITTED = cost.read_committed()


@pytest.mark.parametrize(
    "method", ["td3-bc", *(pytest.param(m, marks=pytest.mark.slow) for m in cost.METHODS if m != "td3-bc")]
)
def test_a_step_costs_what_it_did(method: str) -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("the figures are of programs compiled for the CPU; set JAX_PLATFORMS=cpu")
    if cost.place() not in COMMITTED:
        pytest.skip(f"cost.json has no figures for {cost.place()}; `python benchmarks/cost.py --renew` writes them")
    changed = cost.exceeded({method: cost.measure(method)}, COMMITTED[cost.place()])
    assert not changed, "\n".join([*changed, "if it is meant to be so: python benchmarks/cost.py --renew"])


def test_every_place_has_every_method() -> None:
    assert {place: sorted(costs) for place, costs in COMMITTED.items()} == dict.fromkeys(
        COMMITTED, sorted(cost.METHODS)
    )
