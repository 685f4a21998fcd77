"""Trainings in forked processes, and what is expected of them.

Every training is a process forked from this one, which has imported everything and started nothing: a fork costs
milliseconds where a fresh interpreter costs seconds.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 120
METHOD = "sbac-no-w"
"""Has several phases, each small."""
PATIENCE = 600.0
"""Seconds after which a process counts as hung."""


@dataclass
class Outcome:
    """What came of one kind of fault."""

    name: str
    tried: int = 0
    failures: list[str] = field(default_factory=list[str])
    notes: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0

    def expect(self, holds: bool, failure: str) -> None:
        if not holds:
            self.failures.append(failure)
            print(f"FAILED {self.name}: {failure}", flush=True)

    def note(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1


def table(outcomes: list[Outcome]) -> str:
    lines = ["| fault | tried | failed | seconds | |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        notes = ", ".join(f"{what} {count:,}" for what, count in sorted(outcome.notes.items()))
        failed, seconds = len(outcome.failures), f"{outcome.seconds:.0f}"
        lines.append(f"| {outcome.name} | {outcome.tried:,} | {failed} | {seconds} | {notes} |")
    return "\n".join(lines)


@dataclass
class Ended:
    code: int
    """The exit code; negative: the signal that killed it."""
    text: str


def start(work: Callable[[], int], out: Path) -> int:
    """Runs `work` in a forked process whose output goes to a file; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with out.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(child: int, out: Path, patience: float = PATIENCE) -> Ended:
    """Waits for a process; one that hangs is killed and counts as code 999."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return Ended(os.waitstatus_to_exitcode(status), out.read_text(errors="replace"))
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Ended(999, out.read_text(errors="replace"))


def command(arguments: list[str], before: Callable[[], None] = lambda: None) -> Callable[[], int]:
    """A command of sbac, after `before` has prepared the process."""

    def work() -> int:
        from sbac import cli

        before()
        return cli.main(arguments)

    return work


def run(arguments: list[str], folder: Path, before: Callable[[], None] = lambda: None) -> Ended:
    out = folder / "output.txt"
    return wait(start(command(arguments, before), out), out)


def is_clean(ended: Ended) -> bool:
    """Whether a refusal is one line, without a traceback."""
    return ended.code == 2 and "Traceback" not in ended.text and "error: " in ended.text


def make_log(path: Path, rows: int = 400, seed: int = 0) -> Any:
    from sbac.data import Dataset

    rng = np.random.default_rng(seed)
    ends = np.zeros(rows, bool)
    ends[49::50] = True
    data = Dataset(
        observations=rng.normal(size=(rows, 3)),
        actions=rng.uniform(-2, 2, (rows, 1)),
        rewards=rng.normal(size=rows),
        terminals=np.zeros(rows, bool),
        timeouts=ends,
        action_low=[-2.0],
        action_high=[2.0],
    )
    data.save(path)
    return data


def training(log: Path, out: Path, watched: bool, method: str = METHOD) -> list[str]:
    """The words of a short training; `watched`: its policies are evaluated meanwhile."""
    words = ["train", str(log), "--algorithm", method, "--preset", "paper" if method == METHOD else "quick"]
    words += ["--seeds", "2", "--steps", str(STEPS), "--hidden", "8", "--batch-size", "8"]
    words += ["--checkpoint-seconds", "0", "--resume", "--out", str(out)]
    how = ["--env", "Pendulum-v1", "--episodes", "1", "--workers", "1", "--evaluate-every", "40"]
    return [*words, *(how if watched else ["--no-evaluate"])]


def contents(out: Path) -> dict[str, bytes]:
    """What two runs of the same training must agree in, to the last bit."""
    kept = {path.name: path.read_bytes() for path in sorted((out / "policies").glob("*.safetensors"))}
    rows = (out / "metrics.jsonl").read_bytes().splitlines()
    kept["metrics.jsonl"] = b"\n".join(rows)
    if (out / "evaluations.jsonl").exists():
        kept["evaluations.jsonl"] = b"\n".join(sorted((out / "evaluations.jsonl").read_bytes().splitlines()))
    return kept


def check_loads(out: Path, outcome: Outcome, where: str) -> None:
    """At any moment a run's folder loads, or holds no run yet."""
    from sbac.errors import UserError
    from sbac.runs import Run

    if not (out / "config.json").exists():
        return
    try:
        Run.load(out)
    except UserError as error:
        outcome.expect(False, f"{where}: the folder does not load: {error}")
