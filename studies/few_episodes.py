"""What `sbac select` says of policies that were learned from 25 episodes, beside what they earn.

    python studies/few_episodes.py --draws 6 --out results/few-episodes-select.jsonl

Each draw takes 25 episodes of hopper-demo at random, trains preset quick with three alphas and two seeds, asks
`sbac.select`, and plays 50 episodes of every policy. A line for each policy; minutes a draw on two cores.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.evaluation.evaluate_run import evaluate_policies

LOG, TASK, EPISODES = "hopper-demo", "hopper-medium-v2", 25
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def drawn(number: int) -> sbac.Dataset:
    """25 episodes of the log, without replacement."""
    log = sbac.load(LOG)
    chosen = sorted(np.random.default_rng(number).choice(len(log.episodes), EPISODES, replace=False))
    rows = np.concatenate([np.arange(int(first), int(end)) for first, end in log.episodes[chosen]])
    return sbac.load(
        {"name": f"draw {number}", **{name: np.asarray(getattr(log, name))[rows] for name in COLUMNS}}, task=TASK
    )


def shortened(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


def judged(number: int, folder: Path) -> list[dict[str, Any]]:
    data = drawn(number)
    run = sbac.train(data, seeds=2, alpha=[0.25, 1.0, 4.0], evaluate=False, out=folder)
    choice = sbac.select(run, data)
    played = {(row.setting["alpha"], row.seed): row.episodes for row in evaluate_policies(folder, TASK, 50)}
    lines: list[dict[str, Any]] = []
    for candidate, row in zip(choice.candidates, choice.table, strict=True):
        episodes = played[row["alpha"], row["seed"]]
        assert episodes.discounted_returns is not None and episodes.scores is not None
        truth: dict[str, float] = {
            "true_gain": float(np.mean(episodes.discounted_returns)) - choice.log,
            "score": float(np.mean(episodes.scores)),
        }
        numbers: dict[str, Any] = {name: row[name] for name in ("gain", "gain_low", "gain_high")} | truth
        found = {name: shortened(value) for name, value in candidate.diagnostics.items()}
        about = {"draw": number, "alpha": row["alpha"], "seed": row["seed"], "log": round(choice.log, 3)}
        rounded = {name: None if value is None else round(value, 2) for name, value in numbers.items()}
        lines.append({**about, **rounded, "diagnostics": found})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with options.out.open("w") as file:
        for number in range(options.first, options.first + options.draws):
            with tempfile.TemporaryDirectory() as folder:
                for line in judged(number, Path(folder) / "run"):
                    file.write(json.dumps(line) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
