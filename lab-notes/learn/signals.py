"""Kill -9 and Ctrl-C at many moments of real commands, and what becomes of them: tables in Markdown.

    python lab-notes/learn/signals.py kill --out runs/signals
    python lab-notes/learn/signals.py interrupt --out runs/signals

kill: `sbac learn` on the first 5,000 rows of hopper-demo, with two small candidates, is killed at ten moments and
called again. The plan must stay, and the answer and every policy must be those of the command that nothing disturbed.
interrupt: Ctrl-C in every stage of `learn`, and in `train` and `select`; the seconds until the process is gone.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sbac
from sbac.learning import plan

ROWS = 5_000
PATIENCE = 500.0


def small_table() -> None:
    """In place of the table of plans: a row of the same kinds that takes less than a minute."""
    five = next(row for row in plan.TABLE if row.name == "two cores, 5 minutes")
    effort = replace(five.effort, replicates=2, steps=(500, 500), model_steps=500, model_members=3)
    candidates = [replace(each, seconds=each.seconds / 20) for each in five.candidates]
    row = replace(five, name="small", steps=[1_500, 800], candidates=candidates, effort=effort, judge_seconds=10.0)
    plan.TABLE = (plan.TABLE[0], row)


def child(words: Sequence[str], cache: Path) -> "subprocess.Popen[str]":
    """A command as a user starts it, but with the small table."""
    code = "import sys, signals; signals.small_table(); from sbac.cli import main; sys.exit(main())"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    command = [sys.executable, "-u", "-c", code, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(words: Sequence[str], cache: Path) -> tuple[int, str, str, float]:
    began = time.monotonic()
    process = child(words, cache)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err, time.monotonic() - began


def answer_of(folder: Path) -> dict[str, Any]:
    """What must be the same: all but times."""
    said = json.loads((folder / "answer.json").read_text())
    lines = [line for line in said["lines"] if not line.startswith(("It took", "Written to", "Next:"))]
    return {**{k: v for k, v in said.items() if k not in ("plan", "minutes_taken")}, "lines": lines}


def policies_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def kill(out: Path, count: int) -> None:
    log, cache = out / "log.npz", out / "cache"
    whole = out / "whole"
    words = ["learn", str(log), "--minutes", "5", "--out"]
    finish([*words, str(out / "warm")], cache)  # compiles
    code, text, _, took = finish([*words, str(whole)], cache)
    assert code == 0
    print(f"undisturbed: {took:.0f} s\n\n```text\n{text}```\n", flush=True)
    print(
        "| killed after | it had said last | plan.json was there | the same row | the same answer | the same policies |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for number in range(1, count + 1):
        folder, moment = out / f"killed-{number}", took * number / (count + 0.5)
        process = child([*words, str(folder)], cache)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        said = process.communicate()[1].splitlines()
        last = said[-1] if said else "nothing"
        began = plan.read_plan(folder) if folder.exists() else None
        code, _, err, _ = finish([*words, str(folder)], cache)
        assert code == 0, err
        after = plan.read_plan(folder)
        assert after is not None
        same = [
            "-" if began is None else str(began.row == after.row),
            str(answer_of(folder) == answer_of(whole)),
            str(policies_of(folder) == policies_of(whole)),
        ]
        cells = [f"{moment:.1f} s", last, str(began is not None), *same]
        print(f"| {' | '.join(cells)} |", flush=True)


def interrupt(out: Path) -> None:
    log, cache, run = out / "log.npz", out / "cache", out / "run"
    learn, train = ["learn", str(log), "--minutes", "5", "--out"], ["train", str(log), "--no-evaluate", "--out"]
    finish([*learn, str(out / "warm")], cache)
    if not run.exists():
        finish([*train, str(run), "--steps", "100", "--seeds", "2"], cache)
    fresh = out / "no-cache"
    stages: list[tuple[str, list[str], str, float, Path]] = [
        ("learn: it starts", [*learn, "FOLDER"], "", 1.0, cache),
        ("learn: look, probe", [*learn, "FOLDER"], "look:", 0.2, fresh),
        ("learn: compiling", [*learn, "FOLDER"], "train 1", 4.0, fresh),
        ("learn: in a chunk", [*learn, "FOLDER"], "train 1", 5.0, cache),
        ("learn: second candidate", [*learn, "FOLDER"], "train 2", 1.0, cache),
        ("learn: judge, compiling", [*learn, "FOLDER"], "judge:", 2.0, fresh),
        ("learn: judge", [*learn, "FOLDER"], "judge:", 5.0, cache),
        ("learn: write", [*learn, "FOLDER"], "write:", 0.5, cache),
        ("train: compiling", [*train, "FOLDER", "--preset", "tuned"], "", 12.0, fresh),
        ("train: in a chunk", [*train, "FOLDER", "--steps", "100000"], "", 25.0, cache),
        ("select: compiling", ["select", str(run)], "", 12.0, fresh),
        ("select", ["select", str(run)], "", 25.0, cache),
    ]
    print("| stage | seconds until it is gone | exit code | what it says last |")
    print("|---|---|---|---|", flush=True)
    for number, (name, words, line, more, where) in enumerate(stages):
        folder = out / f"interrupted-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(fresh, ignore_errors=True)
        process = child([str(folder) if word == "FOLDER" else word for word in words], where)
        assert process.stderr is not None
        said: list[str] = []
        while line and not any(each.startswith(line) for each in said):
            said.append(process.stderr.readline())
        time.sleep(more)
        early = process.poll() is not None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=PATIENCE)[1]
        took = time.monotonic() - began
        last = err.splitlines()[-1] if err else ""
        last = last.replace(str(folder), "FOLDER").replace(str(run), "RUN")
        print(f"| {name} | {'it had ended' if early else f'{took:.1f}'} | {process.returncode} | {last} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kill", "interrupt"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10, help="kills")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if not (asked.out / "log.npz").exists():
        log = sbac.load("hopper-demo")
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        columns: dict[str, Any] = {name: getattr(log, name)[:ROWS] for name in names}
        columns["timeouts"][-1] = not columns["terminals"][-1]
        sbac.Dataset(**columns).save(asked.out / "log.npz")
    if asked.what == "kill":
        kill(asked.out, asked.count)
    else:
        interrupt(asked.out)


if __name__ == "__main__":
    main()
