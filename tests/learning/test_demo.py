"""The demo: what `sbac.learn` says, and the truth beside it. The learning itself is a stub here."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import sbac
from sbac.learning.answer import Answer
from tests.exporting.policies import make_policy

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.parametrize("keep", [False, True])
def test_the_promise_stands_beside_what_happens(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = make_policy("tanh-gaussian", observations=11, actions=3)

    def learn(data: sbac.Dataset, out: Path, **options: Any) -> Answer:
        assert data.name == "hopper-demo" and options["minutes"] == 7
        policy.save(out / "runs" / "pi-1" / "clone.safetensors")
        gains = (None, None, None) if keep else (300.0, 100.0, 500.0)
        return Answer(None if keep else policy, *gains, [], keep, [], "the answer", out)

    monkeypatch.setattr(sbac, "learn", learn, raising=False)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--minutes", "7", "--episodes", "2", "--out", str(tmp_path / "demo")])
    runpy.run_path(str(DEMO), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("the answer\n\nThe truth, from 2 episodes")
    assert ("Promised: +300 over the log (90 %: +100 to +500). Happened: " in printed) == (not keep)
    assert printed.count("an episode, standard error") == (2 if keep else 3)
    assert (tmp_path / "demo" / "promise.png").stat().st_size > 5_000
