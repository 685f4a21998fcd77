"""A whole `sbac learn` on a small log: what it leaves, how it goes on after a kill, and what it refuses."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import split
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import sbac
from sbac import cli
from sbac.errors import UserError
from sbac.learning import learn as stages
from sbac.learning.answer import Answer, Decision
from sbac.learning.plan import LearnCandidate, PlanRow, read_plan
from sbac.policy import Policy
from sbac.runs import Run
from sbac.trust.choosing import Choice
from tests.learning.small import point_log, small_row

DATA = point_log()


def cheap_row(**changes: Any) -> PlanRow:
    """Two clones of other learning rates, which compile quickly."""
    few = [
        LearnCandidate(name, [{"learning_rate": rate}], 1.0, algorithm="bc")
        for name, rate in (("slow", 1e-4), ("fast", 1e-3))
    ]
    options = {"hidden": [8], "batch_size": 16}
    return replace(small_row(few), steps=[20], options=options, **changes)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answer, Path]:
    folder = tmp_path_factory.mktemp("learn") / "point"
    return sbac.learn(DATA, minutes=30, out=folder, seed=2, row=small_row(), progress=False), folder


def test_what_it_leaves(learned: tuple[Answer, Path]) -> None:
    answer, folder = learned
    said = json.loads((folder / "answer.json").read_text())
    assert said["format"] == 1 and said["minutes"] == 30 and 0 < said["minutes_taken"] < 30
    assert said["plan"]["row"]["name"] == "small" and said["plan"]["dropped"] == []
    assert (said["gain"], said["gain_low"], said["gain_high"]) == (answer.gain, answer.gain_low, answer.gain_high)
    assert said["keep"] == answer.keep == (answer.policy is None) and said["warnings"] == answer.warnings
    assert answer.text == "\n".join(said["lines"]) and len(said["lines"]) <= 12
    assert {path.name for path in (folder / "runs").iterdir()} == {"pi-1", "mu-1"}
    for page in ("card.html", "report.html"):
        text = (folder / page).read_text()
        assert "<html" in text
        assert (">the best, not taken<" in text, ">taken<" in text) == (answer.keep, not answer.keep)
    assert said["lines"][0].split("'")[0][:20] in (folder / "report.html").read_text()
    assert (folder / "policy.safetensors").exists() == (folder / "policy.onnx").exists() == (not answer.keep)
    if answer.policy is not None:
        assert Policy.load(folder / "policy.safetensors").hash == answer.policy.hash
    assert [policy.config["seed"] for policy in Run.load(folder / "runs" / "mu-1").policies] == [4, 5]


def test_its_folder_is_no_runs_folder_and_the_line_says_where_they_are(learned: tuple[Answer, Path]) -> None:
    with pytest.raises(sbac.UserError, match="of sbac learn, expected one of its runs: .*/runs/mu-1, .*/runs/pi-1$"):
        Run.load(learned[1])


def test_shared_phases_change_nothing(learned: tuple[Answer, Path]) -> None:
    """What takes over the first phase has the bits of a training of its own."""
    options: Any = small_row().options
    alone = sbac.train(
        DATA, settings=[{"critic": "mu", "alpha": 1.0}], seeds=[4, 5], steps=[20, 20], evaluate=False, progress=False,
        **options,
    )  # fmt: skip
    taken_over = Run.load(learned[1] / "runs" / "mu-1").policies
    assert [policy.hash for policy in alone.policies] == [policy.hash for policy in taken_over]


def test_a_finished_folder_gives_its_answer_again(
    learned: tuple[Answer, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, folder = learned
    monkeypatch.setattr(stages, "train", None)
    for minutes in (None, 30):
        again = sbac.learn(DATA, minutes=minutes, out=folder, seed=2, progress=False)
        assert again.text == answer.text and again.gain == answer.gain and again.keep == answer.keep
    DATA.save(tmp_path / "point.npz")
    point_log(seed=1).save(tmp_path / "other.npz")
    words = ["learn", str(tmp_path / "point.npz"), "--out", str(folder), "--seed", "2"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out == f"{answer.text}\n"
    for wrong, message in (
        ([*words, "--minutes", "29"], "begun with minutes 30"),
        ([*words[:-1], "1"], "begun with seed 2, not 1"),
        (["learn", str(tmp_path / "other.npz"), *words[2:]], "another log"),
        (["learn", str(tmp_path / "point.npz"), "--out", str(tmp_path)], "not a folder of sbac learn"),
    ):
        assert cli.main(wrong) == 2
        printed = capsys.readouterr()
        assert not printed.out and message in printed.err.splitlines()[-1]
        assert printed.err.splitlines()[-1].startswith("error: ")


class Killed(BaseException):
    """As a SIGKILL, which costs a process: nothing in the package catches it."""


Judge = Callable[..., Choice]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answer, Path, list[str], Choice]:
    """An answer that nothing interrupted, what was judged for it, and the judge's word."""
    folder = tmp_path_factory.mktemp("learn") / "point"
    judged: list[Any] = []

    def remember(policies: Any, *arguments: Any, **options: Any) -> Choice:
        choice = real(policies, *arguments, **options)
        judged.extend([hashes(policies), choice])
        return choice

    real = stages.select
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "select", remember)
        answer = sbac.learn(DATA, minutes=30, out=folder, row=cheap_row(), progress=False)
    return answer, folder, *judged


def hashes(policies: list[Run | Policy]) -> list[str]:
    return [p.hash for each in policies for p in (each.policies if isinstance(each, Run) else [each])]


KILLED = """
    import os, signal, sys
    import sbac.files
    from tests.learning.test_learn import DATA, cheap_row

    def write(path, data, real=sbac.files.write_atomic):
        real(path, data)
        if path.name == "selection.json":
            os.kill(os.getpid(), signal.SIGKILL)

    sbac.files.write_atomic = write
    sbac.learn(DATA, minutes=30, row=cheap_row(), out=sys.argv[1], progress=False)
"""


@pytest.mark.parametrize("moment", ["plan.json", "state-0.safetensors", "judge", "SIGKILL", "card.html", "answer.json"])
def test_after_a_kill_the_same_command_goes_on_to_the_same_answer(
    moment: str,
    unbroken: tuple[Answer, Path, list[str], Choice],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, finished, policies, choice = unbroken
    folder, out = tmp_path / "point", {"out": tmp_path / "point", "progress": False}
    real_write = sbac.files.write_atomic  # type: ignore[attr-defined]

    def write(path: Path, data: Any) -> None:
        real_write(path, data)
        if path.name == moment:
            raise Killed

    def judge(judged: Any, *arguments: Any, **options: Any) -> Choice:
        assert hashes(judged) == policies  # what the judge says of them follows from them and the seed
        return choice

    def interrupted(*arguments: Any, **options: Any) -> Choice:
        raise Killed

    if moment == "SIGKILL":
        killed = subprocess.run([sys.executable, "-c", dedent(KILLED), str(folder)], cwd=Path(__file__).parents[2])
        assert killed.returncode == -signal.SIGKILL
    else:
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr("sbac.files.write_atomic", write)
            patch.setattr(stages, "select", interrupted if moment == "judge" else judge)
            sbac.learn(DATA, minutes=30, row=cheap_row(), **out)
    plan = read_plan(folder)
    assert plan is not None
    monkeypatch.setattr(stages, "select", judge)
    monkeypatch.setattr(stages, "pick", None)  # the plan is kept, whatever the table says now
    again = sbac.learn(DATA, **out)
    assert (again.gain, again.gain_low, again.gain_high) == (answer.gain, answer.gain_low, answer.gain_high)
    assert again.keep == answer.keep and again.warnings == answer.warnings
    assert again.text.splitlines()[:2] == answer.text.splitlines()[:2]
    after = read_plan(folder)
    assert after is not None and after.row == plan.row
    for path in finished.rglob("*.safetensors"):
        assert (folder / path.relative_to(finished)).read_bytes() == path.read_bytes(), path.name


def test_something_else_to_watch_is_judged_anew_and_nothing_is_trained(
    unbroken: tuple[Answer, Path, list[str], Choice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, finished, policies, choice = unbroken
    folder, asked = tmp_path / "point", list[Any]()
    shutil.copytree(finished, folder)
    before = {path: path.read_bytes() for path in (folder / "runs").rglob("*.safetensors") if path.stem != "clone"}

    def judge(judged: Any, *arguments: Any, **options: Any) -> Choice:
        asked.append((hashes(judged), options["watch"], options["ends"]))
        return choice

    def interrupted(*arguments: Any, **options: Any) -> Choice:
        raise Killed

    def times() -> dict[str, float]:
        told: dict[str, float] = json.loads((folder / "answer.json").read_text())["plan"]["times"]
        return told

    first = times()
    monkeypatch.setattr(stages, "select", interrupted)
    with pytest.raises(Killed):
        sbac.learn(DATA, out=folder, progress=False, watch=["o0 < 1"])
    monkeypatch.setattr(stages, "select", judge)
    for watch in (["o0 < 1"], []):  # the second gives the finished answer
        again = sbac.learn(DATA, out=folder, progress=False, watch=watch)
        assert again.gain == answer.gain and again.policy is not None and answer.policy is not None
    assert asked == [(policies, ["o0 < 1"], None)]
    assert times().keys() == first.keys() and times()["judge"] < first["judge"]
    monkeypatch.setattr("sbac.learning.writing.decide_on", lambda *_: Decision(None, True, "nothing is better"))
    again = sbac.learn(DATA, out=folder, progress=False, ends="o0 > 9")
    assert again.keep and asked[1:] == [(policies, ["o0 < 1"], "o0 > 9")]
    assert {path.name for path in folder.glob("policy.*")} == set()
    assert all(path.read_bytes() == bytes_before for path, bytes_before in before.items())


def test_a_finished_folder_may_be_moved_and_judged_anew(
    learned: tuple[Answer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*arguments: Any, **options: Any) -> Choice:
        raise Killed

    shutil.copytree(learned[1], tmp_path / "moved")
    monkeypatch.setattr(stages, "select", judge)
    with pytest.raises(Killed):
        sbac.learn(DATA, out=tmp_path / "moved", seed=2, watch=["o0 < 1"], progress=False)


def test_a_slower_machine_drops_whole_candidates_once(
    unbroken: tuple[Answer, Path, list[str], Choice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first candidate took far longer than the table says; a kill after that changes nothing."""
    monkeypatch.setattr(stages, "select", lambda *_, **__: unbroken[3])
    slow = cheap_row()
    slow = replace(slow, candidates=[replace(slow.candidates[0], seconds=1e-9), slow.candidates[1]])
    answer = sbac.learn(DATA, minutes=30, out=tmp_path / "point", row=slow, progress=False)
    assert "Not trained, for lack of time: fast." in answer.text
    assert not (tmp_path / "point" / "runs" / "fast").exists()
    plan = read_plan(tmp_path / "point")
    assert plan is not None and plan.dropped == ["fast"]


def test_without_a_folder_nothing_is_written_and_a_large_log_is_judged_on_whole_episodes(
    unbroken: tuple[Answer, Path, list[str], Choice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[sbac.Dataset] = []

    def judge(judged: Any, data: sbac.Dataset, **options: Any) -> Choice:
        asked.append(data)
        return unbroken[3]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stages, "select", judge)
    monkeypatch.setattr(stages, "MOST_JUDGED", 300)
    answer = sbac.learn(DATA, minutes=30, row=cheap_row(), progress=False)
    assert answer.folder is None and not list(tmp_path.iterdir()) and "Written" not in answer.text
    assert (answer.policy is None) == answer.keep
    assert len(asked[0]) == 300 and set(np.diff(asked[0].episodes, axis=1)[:, 0]) == {30}
    assert "Judged on 10 of 40 episodes, drawn at random." in answer.text


def test_what_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stranger's mistakes: one line each."""
    monkeypatch.chdir(tmp_path)
    DATA.save("point.npz")
    Path("notes.txt").write_text("years of work")
    Path("no logs").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for words, message in (
        ("nowhere.csv", "nowhere.csv: no such file or folder"),
        ("'no logs'", "no logs: expected a Minari dataset"),
        ("point.npz --minutes 0", "minutes 0.0: expected a number above 0"),
        ("point.npz --minutes 0.01", "too few on this machine; expected at least"),
        ("point.npz --seed -1", "seed -1: expected at least 0"),
        ("point.npz --out ''", "out '': expected the name of a folder"),
        ("point.npz --out notes.txt", "notes.txt: a file; expected a folder"),
        ("point.npz --out .", "not a folder of sbac learn (it has no plan.json); name another one with --out"),
        ("point.npz --action-high inf", "action_high: expected finite bounds"),
        ("point.npz --columns rewards=profit", "no column 'profit'; the file has action"),
        ("point.npz --ends 'height < 1'", "ends 'height < 1': unknown column 'height'"),
        ("point.npz --watch glucose", "unknown column to watch 'glucose'"),
        ("point.npz --plan --watch glucose", "unknown column to watch 'glucose'"),
        ("point.npz --plan --ends 'height < 1'", "ends 'height < 1': unknown column 'height'"),
    ):
        assert cli.main(["learn", *split(words)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1 and message in said
    assert cli.main(["learn", "point.npz", "--minutes", "1000000", "--plan"]) == 0
    assert "plan: " in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UserError, match="expected a list"):
        sbac.learn(DATA, watch="x < 1")
