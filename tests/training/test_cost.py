"""A step costs what it did when its figures were committed, by XLA's own count."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import cost

COMMITTED = json.loads(cost.COMMITTED.read_text())


@pytest.mark.skipif(cost.environment() != COMMITTED["environment"], reason="other versions count differently")
@pytest.mark.parametrize("method", COMMITTED["costs"])
def test_a_step_costs_what_it_did(method: str) -> None:
    changed = cost.exceeded({method: cost.measure(method)}, COMMITTED["costs"])
    assert not changed, "\n".join([*changed, "if it is meant to be so: python benchmarks/cost.py --renew"])


def test_a_change_is_told_with_its_figures() -> None:
    costs = {"sbac": {"estimate": {"flops": 100.0, "bytes": 50.0, "operations": 10}}}
    dearer = {"sbac": {"estimate": {"flops": 110.0, "bytes": 50.0, "operations": 10}}}
    assert cost.exceeded(costs, costs) == []
    assert cost.exceeded(dearer, costs) == ["sbac estimate flops: 110, committed 100"]
