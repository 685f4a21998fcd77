"""Trains the third form's list and its rivals on made logs, forms committees, and plays all of them.

python lab-notes/third-form/policies.py OUT SCRATCH --logs hopper-medium-made walker2d-medium-made --seeds 103 104 105

Logs of one call are of one shape and train in one program. OUT/LOG has every policy's file and `truth.jsonl`, a row a
policy: what it did in the simulator, and the last row of its training. A job that has its rows is not done again.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.evaluation.worker import Pool
from sbac.making.making import make_datasets
from sbac.runs import Run, WarmStart
from sbac.training.folder import Folder
from sbac.training.loop import train_runs
from sbac.training.open_run import OpenRun
from sbac.training.request import Evaluating, Grid, OfflineRequest

ESTIMATE, IMPROVE = 200_000, 100_000
JOBS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], str | None]] = {
    # method, options, steps, whose phase estimate is taken
    "mu": ("sbac", {"critic": "mu", "alpha": [1 / 16, 1.0]}, (ESTIMATE, IMPROVE), None),
    "pi": ("sbac", {"critic": "pi", "alpha": [1 / 8, 1 / 4, 1 / 2]}, (0, IMPROVE), "mu"),
    "expectile": ("sbac", {"critic": "expectile", "alpha": [1 / 4]}, (ESTIMATE, IMPROVE), None),
}


def main(
    out: Path, scratch: Path, logs: Sequence[str], seeds: Sequence[int], jobs: Sequence[str], episodes: int
) -> None:
    missing = [name for name in logs if not (scratch / "data" / f"{name}.npz").exists()]
    if missing:
        make_datasets(missing, out=scratch / "data")
    data = {name: sbac.load(scratch / "data" / f"{name}.npz") for name in logs}
    with Pool() as pool:
        for job in jobs:
            if all(has_rows(out / name / "truth.jsonl", job) for name in logs):
                continue
            began = time.monotonic()
            runs = trained(scratch / "runs", data, job, seeds)
            seconds = time.monotonic() - began
            for name, run in runs.items():
                write_down(out / name, name, job, run, pool, episodes)
            print(job, *logs, f"training {seconds:.0f} s, in all {time.monotonic() - began:.0f} s", flush=True)


def has_rows(path: Path, job: str) -> bool:
    return path.exists() and any(json.loads(line)["job"] == job for line in path.read_text().splitlines())


def trained(folder: Path, data: Mapping[str, sbac.Dataset], job: str, seeds: Sequence[int]) -> dict[str, Run]:
    method, options, steps, source = JOBS[job]
    launches: list[OpenRun] = []
    for name, log in data.items():
        path = folder / name / job
        shutil.rmtree(path, ignore_errors=True)
        request = OfflineRequest(
            data=log,
            algorithm=method,
            folder=Folder(path),
            grid=Grid(list(seeds), "tuned", steps, options),
            evaluating=Evaluating(evaluate=False),
            warm_start=None if source is None else WarmStart(str(path.with_name(source)), ["estimate"]),
        )
        launches.append(OpenRun.open(request))
    runs = train_runs(launches, checkpoint_seconds=600.0, progress=False)
    return dict(zip(data, runs, strict=True))


def write_down(out: Path, log: str, job: str, run: Run, pool: Pool, episodes: int) -> None:
    """Saves and plays the policies of a run and the committees of its settings."""
    out.mkdir(parents=True, exist_ok=True)
    settings: dict[str, list[sbac.Policy]] = {}
    for policy in run.policies:
        settings.setdefault(f"{job}-{policy.config.get('alpha', 'one')}", []).append(policy)
    policies = {f"{setting}-{p.config['seed']}": p for setting, several in settings.items() for p in several}
    policies |= {f"{name}-committee": sbac.committee(several) for name, several in settings.items() if len(several) > 1}
    answers = {}
    for name, policy in policies.items():
        policy.save(out / f"{name}.safetensors")
        answers[name] = pool.submit(out / f"{name}.safetensors", log, episodes, 10_000)
    last = last_metrics(run)
    with (out / "truth.jsonl").open("a") as file:
        for name, policy in policies.items():
            played = answers[name].result()
            row = {"log": log, "job": job, "policy": name, "alpha": policy.config.get("alpha")}
            row |= {"seed": None if name.endswith("committee") else policy.config["seed"]}
            row |= {
                key: np.round(played[key], 3).tolist() for key in ("returns", "lengths", "scores", "discounted_returns")
            }
            file.write(json.dumps(row | {"metrics": last.get(row["seed"], {}).get(row["alpha"], {})}) + "\n")
            print(
                f"  {log} {name}: {np.mean(played['scores']):.1f}, {np.mean(played['lengths']):.0f} steps", flush=True
            )


def last_metrics(run: Run) -> dict[int, dict[float, dict[str, float]]]:
    rows: dict[int, dict[float, dict[str, float]]] = {}
    assert run.folder is not None
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        numbers = {f"{row['phase']}/{name}": value for name, value in row.items() if isinstance(value, float)}
        rows.setdefault(row["seed"], {}).setdefault(row.get("alpha"), {}).update(numbers)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--logs", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--small", action="store_true", help="a trial of the script: few steps, small networks")
    args = parser.parse_args()
    if args.small:
        ESTIMATE, IMPROVE = 60, 40
        for name, (method, options, steps, source) in list(JOBS.items()):
            few = tuple(min(count, 60) for count in steps)
            JOBS[name] = (method, {**options, "hidden": (16, 16), "batch_size": 16}, few, source)
    main(args.out, args.scratch, args.logs, args.seeds, args.jobs, args.episodes)
