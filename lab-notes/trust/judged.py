"""What `sbac select` says of policies beside what they earn: of seven methods, and of SBAC on logs of 25 episodes.

    python lab-notes/trust/judged.py --out lab-notes/trust/other-methods.jsonl
    python lab-notes/trust/judged.py --out lab-notes/trust/other-methods.jsonl --summary
    python lab-notes/trust/judged.py --methods sbac --draws 6 --out few.jsonl

Trains each method with preset quick, three settings of its closeness to the data and two seeds, asks `sbac.select`, and
plays 50 episodes of every policy. A line for each policy. With --draws N the log is 25 of its episodes, drawn at random
N times. Methods that the file has for a log are skipped. About five minutes a method on two cores.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import sbac
from sbac.evaluation.evaluate_run import evaluate_policies

GRIDS: dict[str, dict[str, list[float]]] = {
    "sbac": {"alpha": [0.25, 1.0, 4.0]},
    "rebrac": {"policy_penalty": [0.03, 0.1, 0.3]},
    "iql": {"temperature": [1.0, 3.0, 10.0]},
    "td3-bc": {"alpha": [1.0, 2.5, 5.0]},
    "one-step": {"alpha": [1.0, 3.0, 10.0]},
    "cql": {"alpha": [1.0, 3.0, 10.0]},
    "bc": {},
}
EPISODES = 25
"""Of a log that is drawn."""
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
Row = dict[str, Any]


def logs(name: str, task: str, draws: int) -> list[sbac.Dataset]:
    """The log itself, or so many logs of 25 of its episodes, drawn without replacement."""
    whole = sbac.load(name)
    drawn: list[sbac.Dataset] = []
    for number in range(draws):
        chosen = sorted(np.random.default_rng(number).choice(len(whole.episodes), EPISODES, replace=False))
        rows = np.concatenate([np.arange(int(first), int(end)) for first, end in whole.episodes[chosen]])
        columns = {column: np.asarray(getattr(whole, column))[rows] for column in COLUMNS}
        drawn.append(sbac.load({"name": f"draw {number}", **columns}, task=task))
    return drawn or [whole]


def judged(data: sbac.Dataset, task: str, method: str, folder: Path) -> list[Row]:
    grid: dict[str, Any] = GRIDS[method]
    run = sbac.train(data, algorithm=method, preset="quick", seeds=2, evaluate=False, out=folder, **grid)
    choice = sbac.select(run, data)
    played = {(json.dumps(row.setting), row.seed): row.episodes for row in evaluate_policies(folder, task, 50)}
    rows: list[Row] = []
    for candidate, found in zip(choice.candidates, choice.table, strict=True):
        setting = {name: candidate.setting[name] for name in grid}
        episodes = played[json.dumps(setting), candidate.seed]
        assert episodes.discounted_returns is not None and episodes.scores is not None
        returns = np.array(episodes.discounted_returns)
        numbers: Row = {name: found[name] for name in ("gain", "gain_low", "gain_high")}
        numbers |= {"true_gain": returns.mean() - choice.log, "true_error": returns.std(ddof=1) / len(returns) ** 0.5}
        numbers |= {"score": np.mean(episodes.scores), "promise": candidate.promise, "unit": candidate.unit}
        about: Row = {"data": data.name, "method": method, "setting": setting, "seed": candidate.seed}
        about |= {"taken": candidate.label == choice.label, "decided": choice.decided}
        rounded = {name: None if value is None else round(float(value), 2) for name, value in numbers.items()}
        rows.append({**about, **rounded, "warnings": found["warnings"]})
    return rows


def summary(rows: Sequence[Row]) -> list[str]:
    """Of each method and of all: warnings, intervals, and what choosing gives, within a method and among all."""
    lines = ["log | method | policies | warned | inside | wrong above 0 | rank | score: taken, mean, best"]
    for data in dict.fromkeys(row["data"] for row in rows):
        of_log = [row for row in rows if row["data"] == data]
        for method in [*dict.fromkeys(row["method"] for row in of_log), "all"]:
            own = [row for row in of_log if method in (row["method"], "all")]
            sound = [row for row in own if not row["warnings"]]
            inside = [row["gain_low"] <= row["true_gain"] <= row["gain_high"] for row in sound]
            wrong = sum(row["gain_low"] > 0 > row["true_gain"] for row in sound)
            scores = [row["score"] for row in own]
            rank = float(np.asarray(stats.spearmanr([row["promise"] for row in own], scores))[0])
            taken = (
                max(sound, key=lambda row: row["promise"], default=None)
                if method == "all"
                else next(row for row in own if row["taken"])
            )
            counts = f"{len(own)} | {len(own) - len(sound)} | {sum(inside)} of {len(sound)} | {wrong} | {rank:.2f}"
            score = "none" if taken is None else f"{taken['score']:.1f}"
            lines.append(f"{data} | {method} | {counts} | {score}, {np.mean(scores):.1f}, {max(scores):.1f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="hopper-demo")
    parser.add_argument("--task", default="hopper-medium-v2")
    parser.add_argument("--methods", nargs="+", default=list(GRIDS), choices=list(GRIDS))
    parser.add_argument("--draws", type=int, default=0, help="train on so many logs of 25 episodes instead")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--summary", action="store_true", help="only summarise the file")
    options = parser.parse_args()
    rows: list[Row] = (
        [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    )
    for data in [] if options.summary else logs(options.data, options.task, options.draws):
        for method in options.methods:
            if (data.name, method) in {(row["data"], row["method"]) for row in rows}:
                continue
            with tempfile.TemporaryDirectory() as folder:
                new = judged(data, options.task, method, Path(folder) / "run")
            with options.out.open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in new))
            rows += new
            print(f"{data.name}, {method}: {len(new)} policies", flush=True)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
