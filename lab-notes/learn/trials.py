"""`sbac learn` on a log, and then the truth: its answer, its promise and its minutes beside episodes that are played.

    python lab-notes/learn/trials.py --log hopper-demo --minutes 5 --seed 0 --out runs/trials

LOG: a name or file that `sbac.load` takes (a CSV with --columns and --bounds), or a log that is made: of a small world
(InvertedPendulum-v5, its "steady" controller, Pendulum-v1, MountainCarContinuous-v0), or of the tank (operator,
optimal). Everything lies in OUT/LOG-MINUTES-SEED; a trial that was stopped goes on, and one that is finished is not
repeated. Each adds a line to OUT/trials.jsonl. Where the world is not here, nothing is played.
"""

import argparse
import importlib.util
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.learning import writing
from sbac.learning.plan import TABLE
from sbac.records import as_json
from sbac.runs import Run
from sbac.trust.choice import policy_of, read_choice

HERE = Path(__file__).parent
Play = Callable[[sbac.Policy, int], list[float]]
"""What so many episodes under a policy earn."""


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def log_of(asked: argparse.Namespace) -> tuple[sbac.Dataset, Play | None]:
    """The log, and how its policies are played."""
    small, tank = module(HERE.parent / "small-worlds" / "small_worlds.py"), module(HERE / "tank.py")
    worlds = {world.environment: world for world in small.WORLDS}
    if asked.log in ("operator", "optimal"):
        path = asked.out / f"{asked.log}.csv"
        asked.out.mkdir(parents=True, exist_ok=True)
        tank.write(getattr(tank, asked.log), path)
        return sbac.load(path, columns=tank.COLUMNS, action_low=0.0, action_high=100.0), tank.returns
    if asked.log in worlds:
        data, where = small.record(worlds[asked.log]), asked.log
    elif asked.log == "steady":
        kinds = module(HERE.parent / "third-form" / "small.py")
        data, where = kinds.steady(6_000), "InvertedPendulum-v5"
    else:
        columns = {name: given.split(",") for name, given in (word.split("=", 1) for word in asked.columns)}
        low, high = asked.bounds or (None, None)
        data = sbac.load(asked.log, columns=columns or None, action_low=low, action_high=high)
        where = data.task or data.environment

    if where is None:
        return data, None
    return data, lambda policy, episodes: sbac.evaluate(policy, where, episodes=episodes, seed=50_000).returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--columns", nargs="+", default=[], metavar="FIELD=COLUMN,...", help="of a file")
    parser.add_argument("--bounds", nargs=2, type=float, help="of all actions of a file")
    parser.add_argument("--watch", nargs="+", default=[], metavar="RULE")
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
    data, play = log_of(asked)
    if asked.no_pages:
        writing.build_card = writing.report_page = lambda *_, **__: ""
    answer = sbac.learn(data, minutes=asked.minutes, seed=asked.seed, out=folder, row=row, watch=asked.watch)
    print(answer.text)
    said = json.loads((folder / "answer.json").read_text())
    home = folder / "runs" / said["plan"]["row"]["candidates"][0]["name"]
    judged = Run.load(home)
    choice = read_choice(home, judged.policies)
    assert choice is not None
    rows = [as_json(replace(each, diagnostics={})) for each in choice.candidates]
    truth: dict[str, list[float]] = {}
    if play is not None:
        played = {said["label"], "clone"} | {e.label for e in choice.candidates if e.label.startswith("committee")}
        for candidate in choice.candidates:
            if candidate.label in played:
                truth[candidate.label] = play(policy_of(judged, candidate), asked.episodes)
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
