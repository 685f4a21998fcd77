"""What does the dial cost? Its policy at each of seven alphas beside policies that were trained for that alpha alone.

    python studies/dial.py train hopper-medium-replay-made walker2d-medium-made --seeds 10 11 12 13 14 --runs runs/dial
    python studies/dial.py play --runs runs/dial --out results/dial.jsonl      # on any machine
    python studies/dial.py show results --out results/dial.jsonl               # beside the cells of separate trainings

A row has the returns of one policy at one alpha. Seeds and lengths are those of the cells: the differences are paired.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.data import normalised_score
from sbac.lab.cells import read_cells
from sbac.policy import Policy


def train(tasks: Sequence[str], seeds: Sequence[int], steps: int, runs: Path) -> None:
    for task in tasks:
        if not (runs / task).exists():
            sbac.train(
                task, "sbac", preset="tuned", steps=steps, seeds=seeds, dial=True, evaluate=False, out=runs / task
            )


def play(path: Path, alpha: float, episodes: int) -> dict[str, Any]:
    """The returns of one policy at one alpha; the run's folder is named after its task."""
    task, policy = path.parts[-3], Policy.load(path)
    played = sbac.evaluate(policy.at(alpha=alpha), task, episodes=episodes, seed=1_000_000)
    returns = [round(value, 2) for value in played.returns]
    return {"data": task, "seed": policy.config["seed"], "alpha": alpha, "returns": returns}


def show(rows: Sequence[dict[str, Any]], results: Path) -> list[str]:
    """Points of the dial less those of separate trainings, paired by seed: by task and alpha, and over all."""
    alone = {
        (cell.data.name, final.seed, final.setting["alpha"]): np.array(final.returns)
        for cell in read_cells(results)
        if cell.algorithm == "sbac"
        for final in cell.final
    }
    lines = ["task | alpha | dial | alone | dial less alone, standard error over seeds"]
    every: list[float] = []
    for task in sorted({row["data"] for row in rows}):
        by_seed: dict[int, list[float]] = {}
        for alpha in sorted({row["alpha"] for row in rows}):
            own = [row for row in rows if (row["data"], row["alpha"]) == (task, alpha)]
            both = [
                [float(normalised_score(task, np.asarray(part)).mean()) for part in (row["returns"], found)]
                for row in own
                if (found := alone.get((task, row["seed"], alpha))) is not None
            ]
            differences = [dial - apart for dial, apart in both]
            for row, difference in zip(own, differences, strict=True):
                by_seed.setdefault(row["seed"], []).append(difference)
            lines.append(f"{task} | {alpha:g} | {_means(both)} | {_with_error(differences)}")
        means = [float(np.mean(found)) for found in by_seed.values()]
        every += means
        lines.append(f"{task} | all | | | {_with_error(means)}")
    return [*lines, f"all | all | | | {_with_error(every)}"]


def _means(pairs: Sequence[Sequence[float]]) -> str:
    return " | ".join(f"{value:.1f}" for value in np.mean(pairs, axis=0))


def _with_error(values: Sequence[float]) -> str:
    return f"{np.mean(values):+.1f} ({np.std(values, ddof=1) / np.sqrt(len(values)):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "play", "show"])
    parser.add_argument("names", nargs="*", help="tasks to train on; for show, the results folder")
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12, 13, 14])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--runs", type=Path, default=Path("runs/dial"))
    parser.add_argument("--out", type=Path, default=Path("results/dial.jsonl"))
    args = parser.parse_args()
    if args.what == "train":
        train(args.names, args.seeds, args.steps, args.runs)
    elif args.what == "play":
        jobs = [
            (path, float(turned.config["alpha"]), args.episodes)
            for path in sorted(args.runs.glob("*/policies/*.safetensors"))
            for turned in Policy.load(path).spread()
        ]
        with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool, args.out.open("w") as file:
            for row in pool.map(play, *zip(*jobs, strict=True)):
                file.write(json.dumps(row) + "\n")
    else:
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
        print("\n".join(show(rows, Path(args.names[0]))))


if __name__ == "__main__":
    main()
