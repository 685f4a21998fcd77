"""Trains the third form's list and its rivals on made logs, forms committees, judges and plays all of them.

python lab-notes/third-form/policies.py train OUT SCRATCH --logs hopper-medium-made --seeds 400 401 402
python lab-notes/third-form/policies.py judge OUT SCRATCH --logs ... --effort quick
python lab-notes/third-form/policies.py play OUT SCRATCH --logs ...
python lab-notes/third-form/policies.py again OUT SCRATCH --logs ... --effort full     by today's rules, nothing fitted

Logs of one call are of one shape and train in one program. OUT/LOG has every policy's file, the last row of each
training (JOB.json), `judged-EFFORT.json`, what the judge says of each policy and of its clone, and `truth.jsonl`, a row
a policy: what it did in the simulator. What is there is not done again.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.evaluation.worker import Pool
from sbac.making.making import make_datasets
from sbac.records import as_json
from sbac.runs import Run, WarmStart
from sbac.training.folder import Folder
from sbac.training.loop import train_runs
from sbac.training.open_run import OpenRun
from sbac.training.request import Evaluating, Grid, OfflineRequest
from sbac.trust.behaviour import clone_policy
from sbac.trust.choice import CLONE
from sbac.trust.choosing import candidate_record, judged_candidates
from sbac.trust.contenders import Contender
from sbac.trust.estimates import conclude
from sbac.trust.evidence import EFFORTS, Effort, Facts, Question, find_effort
from sbac.trust.log import read_log
from sbac.trust.watching import Watched

ESTIMATE, IMPROVE, RIVAL = 200_000, 100_000, 200_000
JOBS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], str | None]] = {
    # method, options, steps, whose phase estimate is taken
    "mu": ("sbac", {"critic": "mu", "alpha": [1.0]}, (ESTIMATE, IMPROVE), None),
    "mu-free": ("sbac", {"critic": "mu", "alpha": [1 / 16]}, (0, IMPROVE), "mu"),
    "pi": ("sbac", {"critic": "pi", "alpha": [1 / 8, 1 / 4, 1 / 2]}, (0, IMPROVE), "mu"),
    "expectile": ("sbac", {"critic": "expectile", "alpha": [1 / 4]}, (ESTIMATE, IMPROVE), None),
    "mu-bfloat16": ("sbac", {"critic": "mu", "alpha": [1.0], "precision": "bfloat16"}, (ESTIMATE, IMPROVE), None),
    "iql": ("iql", {"temperature": [3.0, 10.0, 30.0]}, (RIVAL,), None),
    "td3bc": ("td3-bc", {"alpha": [1.0, 2.5, 5.0]}, (RIVAL,), None),
    "rebrac": ("rebrac", {"policy_penalty": [0.03, 0.1]}, (RIVAL,), None),
}
TINY = Effort(2, 2, (32, 32), 64, (100, 100), 2e-3, 0.1, (32, 32), 100)
LIST = ("mu", "mu-free", "pi", "expectile")
"""SBAC's. Beside it: Q^mu in half precision, and rivals, each with a list of settings of its own."""


def train(out: Path, scratch: Path, logs: Sequence[str], seeds: Sequence[int], jobs: Sequence[str]) -> None:
    make(scratch, logs)
    data = {name: sbac.load(scratch / "data" / f"{name}.npz") for name in logs}
    for job in jobs:
        missing = {name: log for name, log in data.items() if not (out / name / f"{job}.json").exists()}
        if not missing:
            continue
        began = time.monotonic()
        for name, run in trained(scratch / "runs", missing, job, seeds).items():
            save(out / name, job, run)
        print(job, *missing, f"{time.monotonic() - began:.0f} s", flush=True)


def make(scratch: Path, logs: Sequence[str], size: int | None = None) -> None:
    missing = [name for name in logs if not (scratch / "data" / f"{name}.npz").exists()]
    if missing:
        make_datasets(missing, out=scratch / "data", size=size)


def trained(folder: Path, data: Mapping[str, sbac.Dataset], job: str, seeds: Sequence[int]) -> dict[str, Run]:
    method, options, steps, source = JOBS[job]
    open_runs: list[OpenRun] = []
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
        open_runs.append(OpenRun.open(request))
    runs = train_runs(open_runs, checkpoint_seconds=600.0, progress=False)
    return dict(zip(data, runs, strict=True))


def save(out: Path, job: str, run: Run) -> None:
    """The policies of a run, the committees of its settings, and last of all the mark that the job is done."""
    out.mkdir(parents=True, exist_ok=True)
    settings: dict[str, list[sbac.Policy]] = {}
    dial = next(name for name, value in JOBS[job][1].items() if isinstance(value, list))
    for policy in run.policies:
        setting = f"{job.removesuffix('-free')}-{policy.config[dial]}"
        settings.setdefault(setting, []).append(policy)
        policy.save(out / f"{setting}-{policy.config['seed']}.safetensors")
    for setting, several in settings.items():
        if len(several) > 1:
            sbac.committee(several).save(out / f"{setting}-committee.safetensors")
    (out / f"{job}.json").write_text(json.dumps(last_metrics(run)))


def last_metrics(run: Run) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    assert run.folder is not None
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        numbers = {f"{row['phase']}/{name}": value for name, value in row.items() if isinstance(value, float)}
        rows.setdefault(f"{row.get('alpha', 'one')}-{row['seed']}", {}).update(numbers)
    return rows


class Stopwatch:
    """Prints the seconds of each part of the judgement when the next one begins."""

    def __init__(self) -> None:
        self.part, self.began = "reading", time.monotonic()

    def __call__(self, part: str, done: int, total: int) -> None:
        if part != self.part:
            now = time.monotonic()
            print(f"  {self.part}: {now - self.began:.0f} s", flush=True)
            self.part, self.began = part, now


def judge(out: Path, scratch: Path, logs: Sequence[str], effort: str) -> None:
    for name in logs:
        told = out / name / f"judged-{effort}.json"
        if told.exists():
            continue
        began = time.monotonic()
        log = read_log(sbac.load(scratch / "data" / f"{name}.npz"), 0.99)
        spent = TINY if effort == "tiny" else find_effort(effort)
        question = Question(log, [], spent, progress=Stopwatch())
        clone_policy(question).save(out / name / f"{CLONE}-{effort}.safetensors")
        files = [
            f for f in sorted((out / name).glob("*.safetensors")) if not f.stem.startswith(CLONE) or effort in f.stem
        ]
        judged = [Contender(file.stem, sbac.Policy.load(file), file) for file in files]
        question = replace(question, policies=[each.policy for each in judged if each.is_finite])
        rows = [short(as_json(row)) for row in judged_candidates(question, judged)]
        told.write_text(json.dumps(rows))
        print(name, effort, f"{len(rows)} judged, {time.monotonic() - began:.0f} s", flush=True)


def again(out: Path, logs: Sequence[str], effort: str) -> None:
    """A record is written anew where today's rules set a policy aside that they did not, or the other way round."""
    for name in logs:
        told = out / name / f"judged-{effort}.json"
        rows = json.loads(told.read_text())
        told.write_text(json.dumps(list(map(judged_again, rows))))
        print(name, f"{sum(row['set_aside'] for row in rows)} set aside, now", end=" ")
        print(sum(row["set_aside"] for row in json.loads(told.read_text())))


def judged_again(row: dict[str, Any]) -> dict[str, Any]:
    facts = Facts(row["diagnostics"])
    if "fitted_gain" not in facts:  # it had diverged
        return row
    watches = [as_watched(each) for each in row["watched"]]
    estimate = conclude(facts, learned=True, watches=watches)
    if bool(estimate.warnings) == row["set_aside"]:
        return row
    return short(as_json(candidate_record(row["label"], row["seed"], row["setting"], estimate, row.get("policy"))))


def as_watched(told: dict[str, Any]) -> Watched:
    """An end, by its share of the log's episodes alone."""
    rates = (np.arange(1_000) < 1_000 * told["log"]).astype(float)
    return Watched(told["name"], told["kind"], np.zeros(1), rates, told["log"])


def short(value: Any) -> Any:
    """Numbers with five digits, so that a record can be committed."""
    if isinstance(value, dict):
        return {key: short(part) for key, part in value.items()}
    if isinstance(value, list):
        return [short(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def play(out: Path, logs: Sequence[str], episodes: int, workers: int | None) -> None:
    with Pool(workers) as pool:
        for log in logs:
            truth = out / log / "truth.jsonl"
            there = {json.loads(line)["policy"] for line in truth.read_text().splitlines()} if truth.exists() else set()
            files = [f for f in sorted((out / log).glob("*.safetensors")) if f.stem not in there]
            answers = [pool.submit(file, log, episodes, 10_000) for file in files]
            with truth.open("a") as lines:
                for file, answer in zip(files, answers, strict=True):
                    played = answer.result()
                    kept = ("returns", "lengths", "scores", "discounted_returns")
                    row = {key: np.round(played[key], 3).tolist() for key in kept if played[key] is not None}
                    lines.write(json.dumps({"log": log, "policy": file.stem} | row) + "\n")
                    print(
                        log,
                        file.stem,
                        f"{np.mean(row['scores']):.1f}",
                        f"{np.mean(row['lengths']):.0f} steps",
                        flush=True,
                    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", choices=["make", "train", "judge", "again", "play"])
    parser.add_argument("out", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--logs", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[400, 401, 402])
    parser.add_argument("--jobs", nargs="+", default=list(LIST), choices=list(JOBS))
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--workers", type=int, help="that play (default: one for each core)")
    parser.add_argument("--effort", default="quick", choices=[*EFFORTS, "tiny"])
    parser.add_argument("--small", action="store_true", help="a trial of the script: few steps, small networks")
    args = parser.parse_args()
    if args.small:
        for name, (method, options, steps, source) in list(JOBS.items()):
            few = tuple(min(count, 60) for count in steps)
            JOBS[name] = (method, {**options, "hidden": (16, 16), "batch_size": 16}, few, source)
    if args.stage == "make":
        make(args.scratch, args.logs, 20_000 if args.small else None)
    elif args.stage == "train":
        train(args.out, args.scratch, args.logs, args.seeds, args.jobs)
    elif args.stage == "judge":
        judge(args.out, args.scratch, args.logs, args.effort)
    elif args.stage == "again":
        again(args.out, args.logs, args.effort)
    else:
        play(args.out, args.logs, args.episodes, args.workers)
