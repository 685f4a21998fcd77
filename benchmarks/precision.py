"""Whether the precision of the products shows in the scores: the same training under each, on the same seeds.

    python benchmarks/precision.py hopper-medium-made walker2d-medium-replay-made --out lab-notes/speed/precision.jsonl
    python benchmarks/precision.py --show lab-notes/speed/precision.jsonl

One line per task and precision: the scores of the last policy of every seed, episode by episode.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np

import sbac
from sbac.nn import Precision
from sbac.results.describe import describe
from sbac.results.series import series_of


def measure(task: str, name: str, told: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    run = sbac.train(
        task,
        told.algorithm,
        preset=told.preset,
        seeds=told.seeds,
        steps=told.steps,
        precision=name,
        episodes=told.episodes,
        evaluate_every=told.steps,
    )
    (last,) = series_of(describe(run))
    scores = {trial.seed: last.measured(trial.last).round(2).tolist() for trial in last.trials}
    about = {"algorithm": told.algorithm, "preset": told.preset, "steps": told.steps}
    return {"task": task, "precision": name, **about, "seconds": round(time.monotonic() - began), "scores": scores}


def show(path: Path) -> None:
    print("| task | precision | score, mean ± deviation over seeds | seeds |\n|---|---|---|---|")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        means = [np.mean(scores) for scores in row["scores"].values()]
        each = ", ".join(f"{mean:.1f}" for mean in means)
        print(f"| {row['task']} | {row['precision']} | {np.mean(means):.1f} ± {np.std(means, ddof=1):.1f} | {each} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--algorithm", default="sbac-no-w")
    parser.add_argument("--preset", default="tuned")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--out", type=Path, help="a file to which every line is added")
    parser.add_argument("--show", type=Path, help="the table of such a file")
    told = parser.parse_args()
    if told.show:
        show(told.show)
    for task in told.tasks:
        for name in get_args(Precision):
            line = json.dumps(measure(task, name, told))
            print(line, flush=True)
            if told.out:
                with told.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
