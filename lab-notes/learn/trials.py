"""`sbac learn` on a log, and then the truth: its answer, its promise and its minutes beside episodes that are played.

    python lab-notes/learn/trials.py --log hopper-demo --minutes 5 --seed 0 --out runs/trials

LOG: a name or file that `sbac.load` takes, or a small world (InvertedPendulum-v5, Pendulum-v1,
MountainCarContinuous-v0), whose log is made. Everything lies in OUT/LOG-MINUTES-SEED; a trial that was stopped goes on,
and one that is finished is not repeated. Each adds a line to OUT/trials.jsonl.
"""

import argparse
import importlib.util
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.learning import writing
from sbac.learning.plan import TABLE
from sbac.runs import Run
from sbac.trust.choice import policy_of, read_choice

SMALL_WORLDS = Path(__file__).parents[1] / "small-worlds" / "small_worlds.py"


def small_worlds() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("small_worlds", SMALL_WORLDS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {world.environment: lambda world=world: module.record(world) for world in module.WORLDS}


def log_of(name: str) -> tuple[sbac.Dataset, str | None]:
    """The log, and where its policies can be played."""
    worlds = small_worlds()
    data = worlds[name]() if name in worlds else sbac.load(name)
    return data, name if name in worlds else data.task or data.environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--row", help="of the table of plans, by its name, in place of the one that fits")
    parser.add_argument("--seeds", type=int, help="with --row: other than the row's")
    parser.add_argument("--steps", type=int, nargs="+", help="with --row: other than the row's")
    parser.add_argument("--no-pages", action="store_true", help="no card and no report, where nothing can be drawn")
    asked = parser.parse_args()

    row = None
    if asked.row is not None:
        row = next(each for each in TABLE if each.name == asked.row)
        row = replace(row, seeds=asked.seeds or row.seeds, steps=asked.steps or row.steps)
    variant = "" if row is None else f"-{row.name.replace(' ', '_')}-{row.seeds}x{'+'.join(map(str, row.steps))}"
    name = f"{Path(asked.log).stem}-{asked.minutes:g}-{asked.seed}{variant}"
    folder, results = asked.out / name, asked.out / "trials.jsonl"
    if results.exists() and any(json.loads(line)["trial"] == name for line in results.read_text().splitlines()):
        print(f"{name}: there already")
        return
    data, where = log_of(asked.log)
    if asked.no_pages:
        writing.build_card = writing.report_page = lambda *_: ""
    answer = sbac.learn(data, minutes=asked.minutes, seed=asked.seed, out=folder, row=row)
    print(answer.text)
    said = json.loads((folder / "answer.json").read_text())
    home = folder / "runs" / said["plan"]["row"]["candidates"][0]["name"]
    judged = Run.load(home)
    choice = read_choice(home, judged.policies)
    assert choice is not None
    rows = [vars(each) | {"diagnostics": None} for each in choice.candidates]
    truth: dict[str, list[float]] = {}
    if where is not None:
        played = {said["label"], "clone"} | {e.label for e in choice.candidates if e.label.startswith("committee")}
        for candidate in choice.candidates:
            if candidate.label in played:
                policy = policy_of(judged, candidate)
                truth[candidate.label] = sbac.evaluate(policy, where, episodes=asked.episodes, seed=50_000).returns
    line = {
        "trial": name,
        "machine": platform.machine(),
        "log_return": float(data.returns.mean()),
        "truth": truth,
        "candidates": rows,
        **{key: value for key, value in said.items() if key != "plan"},
        "row": said["plan"]["row"]["name"],
        "slowness": said["plan"]["slowness"],
        "dropped": said["plan"].get("dropped"),
        "times": said["plan"]["times"],
    }
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")
    for label, returns in truth.items():
        error = np.std(returns, ddof=1) / np.sqrt(len(returns))
        print(f"truth: {label} {np.mean(returns):.1f} (standard error {error:.1f}); the log {data.returns.mean():.1f}")


if __name__ == "__main__":
    main()
