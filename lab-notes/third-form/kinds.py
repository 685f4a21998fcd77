"""Trains SBAC's three kinds of critic on four made logs, two logs of one shape in one program, and plays the policies.

python lab-notes/third-form/kinds.py OUT SCRATCH      (one H200, some 25 minutes; a row a policy in OUT/kinds.jsonl)
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.making.making import make_datasets
from sbac.runs import WarmStart
from sbac.training.folder import Folder
from sbac.training.loop import train_runs
from sbac.training.open_run import OpenRun
from sbac.training.request import Evaluating, Grid, OfflineRequest

SEEDS = [100, 101, 102, 103]
ESTIMATE, IMPROVE = 200_000, 100_000
LOGS = {
    "hopper": ["hopper-medium-made", "hopper-medium-replay-made"],
    "legs": ["halfcheetah-medium-expert-made", "walker2d-medium-made"],
}
JOBS: dict[str, tuple[dict[str, Any], tuple[int, int], str | None]] = {  # options, steps, whose phase estimate is taken
    "mu": ({"critic": "mu", "alpha": [1 / 16, 1 / 4, 1.0]}, (ESTIMATE, IMPROVE), None),
    "pi": ({"critic": "pi", "alpha": [1 / 8, 1 / 4, 1 / 2, 1.0]}, (0, IMPROVE), "mu"),
    "expectile": ({"critic": "expectile", "alpha": [1 / 16, 1 / 4, 1.0]}, (ESTIMATE, IMPROVE), None),
    "pi-long": ({"critic": "pi", "alpha": [1 / 4, 1 / 2, 1.0]}, (0, 2 * IMPROVE), "mu"),
}


def main(out: Path, scratch: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    names = [name for pair in LOGS.values() for name in pair]
    make_datasets(names, out=scratch / "data")
    logs = {name: sbac.load(scratch / "data" / f"{name}.npz") for name in names}
    for pair, job in [(pair, job) for job in JOBS for pair in LOGS]:
        options, steps, source = JOBS[job]
        began = time.monotonic()
        open_runs = []
        for name in LOGS[pair]:
            folder = scratch / "runs" / name / job
            shutil.rmtree(folder, ignore_errors=True)
            warm = None if source is None else WarmStart(str(folder.with_name(source)), ["estimate"])
            grid = Grid(SEEDS, "tuned", steps, options)
            playing = Evaluating(True, name, 10, 10_000, None, [steps[1]])
            request = OfflineRequest(
                data=logs[name], algorithm="sbac", folder=Folder(folder), grid=grid, evaluating=playing, warm_start=warm
            )
            open_runs.append(OpenRun.open(request))
        train_runs(open_runs, workers=4, checkpoint_seconds=600.0, progress=False)
        for name in LOGS[pair]:
            played = (scratch / "runs" / name / job / "evaluations.jsonl").read_text().splitlines()
            record(out / "kinds.jsonl", name, job, steps, options["critic"], [json.loads(line) for line in played])
        print(pair, job, f"{time.monotonic() - began:.0f} s", flush=True)


def record(path: Path, task: str, job: str, steps: tuple[int, int], critic: str, rows: list[dict[str, Any]]) -> None:
    with path.open("a") as file:
        for row in rows:
            place = {name: row.get(name) for name in ("alpha", "seed", "phase", "step")}
            numbers = {name: np.round(row[name], 2).tolist() for name in ("returns", "scores")}
            file.write(
                json.dumps({"task": task, "job": job, "steps": steps, "critic": critic, **place, **numbers}) + "\n"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
