"""Kill -9 and Ctrl-C at many moments of real commands, and what becomes of them: tables in Markdown.

    python lab-notes/learn/signals.py kill --out runs/signals
    python lab-notes/learn/signals.py interrupt --out runs/signals

kill: `sbac learn` on the first 5,000 rows of hopper-demo, with two small candidates, is killed ten times, later each
time, and called again. The plan must stay; answer and policies must be those of a command that nothing disturbed.
interrupt: Ctrl-C in every stage of `learn`, and in `train` and `select`; the seconds until the process is gone.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

import sbac
import sbac.learning.writing  # imports what the commands need
from sbac import cli
from sbac.learning import plan

ROWS = 5_000


def small_table() -> None:
    """In place of the table of plans: a row with the candidates of the shortest one, and networks of seconds."""
    row = plan.TABLE[1]
    effort = replace(row.effort, replicates=2, hidden=(16,), steps=(100, 100), model_hidden=(16,), model_steps=100)
    options = {"hidden": [8], "ratio_hidden": [8], "batch_size": 16, "critics": 2}
    plan.TABLE = (plan.TABLE[0], replace(row, steps=[400, 200], effort=effort, options=options))


def start(words: Sequence[str], cache: Path, said: Path) -> int:
    """A command as a process of its own, forked from this one, which has imported everything and started nothing."""
    process = os.fork()
    if process:
        return process
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    sys.argv = ["sbac", *words]
    jax.config.update("jax_compilation_cache_dir", str(cache))
    os._exit(cli.main())


def finish(words: Sequence[str], cache: Path, said: Path) -> float:
    """Runs a command to its end; its seconds."""
    began = time.monotonic()
    assert os.waitpid(start(words, cache, said), 0)[1] == 0, said.read_text()
    return time.monotonic() - began


def answer_of(folder: Path) -> dict[str, Any]:
    """What must be the same: all but times."""
    said = json.loads((folder / "answer.json").read_text())
    lines = [line for line in said["lines"] if not line.startswith(("It took", "Written to", "Next:"))]
    return {**{k: v for k, v in said.items() if k not in ("plan", "minutes_taken")}, "lines": lines}


def policies_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


KILLS = (
    *(("look:", 0.0), ("look:", 1.0), ("train 1", 0.2), ("train 1", 8.0), ("train 1", 20.0)),
    *(("train 2", 1.0), ("judge:", 2.0), ("judge:", 10.0), ("judge:", 25.0), ("write:", 0.3)),
)
"""Seconds after a line of the command."""


def kill(out: Path) -> None:
    log, cache, whole, folder = out / "log.npz", out / "cache", out / "whole", out / "killed"
    words = ["learn", str(log), "--minutes", "1000", "--out"]
    if not whole.exists():
        finish([*words, str(whole)], cache, out / "whole.txt")
    print("| killed | it had said last | the plan |\n|---|---|---|", flush=True)
    before = None
    for number, (line, seconds) in enumerate(KILLS):
        said = out / f"killed-{number}.txt"
        said.unlink(missing_ok=True)
        process = start([*words, str(folder)], cache, said)
        wait_for(line, seconds, said)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        after = plan.read_plan(folder) if folder.exists() else None
        kept = "not written yet" if after is None else "written" if before is None else yes(before.row == after.row)
        print(f"| {seconds:g} s after {line!r} | {said.read_text().splitlines()[-1]} | {kept} |", flush=True)
        before = after
    finish([*words, str(folder)], cache, out / "killed.txt")
    print(f"\nthe same answer: {yes(answer_of(folder) == answer_of(whole))}")
    print(f"the same policies, bit for bit: {yes(policies_of(folder) == policies_of(whole))}", flush=True)


def wait_for(line: str, seconds: float, said: Path) -> None:
    """Until a command has said a line, and some seconds more."""
    while line and not (said.exists() and any(each.startswith(line) for each in said.read_text().splitlines())):
        time.sleep(0.05)
    time.sleep(seconds)


def yes(same: bool) -> str:
    return "the same" if same else "ANOTHER"


def interrupt(out: Path) -> None:
    log, cache, fresh, run = out / "log.npz", out / "cache", out / "no-cache", out / "run"
    learn, train = ["learn", str(log), "--minutes", "1000", "--out"], ["train", str(log), "--no-evaluate", "--out"]
    if not (out / "warm").exists():
        finish([*learn, str(out / "warm")], cache, out / "said.txt")
    if not run.exists():
        finish([*train, str(run), "--steps", "100", "--hidden", "8"], cache, out / "said.txt")
    stages: list[tuple[str, list[str], str, float, Path]] = [
        ("learn: it reads the log", [*learn, "FOLDER"], "", 0.2, cache),
        ("learn: look and probe", [*learn, "FOLDER"], "look:", 0.5, fresh),
        ("learn: compiling", [*learn, "FOLDER"], "train 1", 5.0, fresh),
        ("learn: second candidate", [*learn, "FOLDER"], "train 2", 0.5, cache),
        ("learn: judge, compiling", [*learn, "FOLDER"], "judge:", 4.0, fresh),
        ("learn: judge", [*learn, "FOLDER"], "judge:", 4.0, cache),
        ("learn: write", [*learn, "FOLDER"], "write:", 0.5, cache),
        ("train: compiling", [*train, "FOLDER", "--preset", "tuned"], "", 20.0, fresh),
        ("train: in a chunk", [*train, "FOLDER", "--hidden", "8", "--steps", "100000"], "", 40.0, cache),
        ("select: compiling", ["select", str(run)], "", 20.0, fresh),
        ("select", ["select", str(run)], "", 40.0, cache),
    ]
    print("| stage | seconds until it is gone | exit code | what it says last |")
    print("|---|---|---|---|", flush=True)
    for number, (name, words, line, more, where) in enumerate(stages):
        folder, said = out / f"interrupted-{number}", out / f"interrupted-{number}.txt"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(fresh, ignore_errors=True)
        said.write_text("")
        process = start([str(folder) if word == "FOLDER" else word for word in words], where, said)
        wait_for(line, more, said)
        before, began = said.read_text(), time.monotonic()
        os.kill(process, signal.SIGINT)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        took = time.monotonic() - began
        last = said.read_text().removeprefix(before).strip().replace(str(folder), "FOLDER").replace(str(run), "RUN")
        print(f"| {name} | {took:.1f} | {code} | {last} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kill", "interrupt"))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's job in the background ignores
    small_table()
    asked.out.mkdir(parents=True, exist_ok=True)
    if not (asked.out / "log.npz").exists():
        log = sbac.load("hopper-demo")
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        columns: dict[str, Any] = {name: getattr(log, name)[:ROWS] for name in names}
        columns["timeouts"][-1] = not columns["terminals"][-1]
        sbac.Dataset(**columns).save(asked.out / "log.npz")
    if asked.what == "kill":
        kill(asked.out)
    else:
        interrupt(asked.out)


if __name__ == "__main__":
    main()
