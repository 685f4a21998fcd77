"""A step costs what it did when its figures were committed, by XLA's own count."""

import json
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


def test_a_change_is_reported_with_its_figures() -> None:
    costs = {"sbac": {"estimate": {"flops": 100.0, "bytes": 50.0, "operations": 10}}}
    dearer = {"sbac": {"estimate": {"flops": 110.0, "bytes": 50.0, "operations": 10}}}
    assert cost.exceeded(costs, costs) == []
    assert cost.exceeded(dearer, costs) == ["sbac estimate flops: 110, committed 100"]


def test_every_place_has_every_method() -> None:
    assert {place: sorted(costs) for place, costs in COMMITTED.items()} == dict.fromkeys(
        COMMITTED, sorted(cost.METHODS)
    )


def test_renewing_keeps_the_figures_of_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(method: str) -> dict[str, dict[str, float]]:
        return {"train": {"flops": 2.0}}

    monkeypatch.setattr(cost, "measure", measure)
    path, elsewhere = tmp_path / "cost.json", {"td3-bc": {"train": {"flops": 1.0}}}
    path.write_text(json.dumps({"another machine, jax 0.1": elsewhere}))
    cost.main(["--methods", "td3-bc"], path)
    assert f"no figures for {cost.place()}" in capsys.readouterr().out
    cost.main(["--renew", "--methods", "td3-bc"], path)
    assert cost.read_committed(path) == {
        "another machine, jax 0.1": elsewhere,
        cost.place(): {"td3-bc": {"train": {"flops": 2.0}}},
    }
