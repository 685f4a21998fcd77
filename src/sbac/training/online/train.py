"""`sbac.train_online`: runs that learn in an environment, their updates one program on the device.

A round is a fixed number of environment steps of every run and as many updates. Each run has a process that steps
its environment with the policy in numpy; while the device computes the updates of one round, the processes gather
the next, so a policy gathers data one or two rounds after it was made.
"""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbac import files, interrupts
from sbac.environments.opening import check_spaces, environment_of
from sbac.errors import UserError, positive
from sbac.policy import Floats, Policy
from sbac.runs import FORMAT, Run
from sbac.training.folder import open_folder
from sbac.training.online.collector import Collectors

if TYPE_CHECKING:
    from sbac.training.grid import Member
    from sbac.training.online.learner import Learner

LOGS, EVALUATIONS = 50, 10


def rounds(
    learner: "Learner", collectors: Collectors, start_steps: int, total_steps: int
) -> Iterator[tuple[int, list[dict[str, Floats]]]]:
    """Trains round by round. Yields, while the device works on a round, the steps before it and the policies then."""
    import jax

    from sbac.training.online.learner import pack, run_arrays

    runs, sizes, kind = learner.runs, learner.sizes, learner.actor.kind
    noise = [run.config.exploration for run in runs]  # pyright: ignore[reportAttributeAccessIssue]

    def ask(policies: list[dict[str, Floats]]) -> None:
        collectors.start_round(kind, policies if learner.step >= start_steps else None, noise)

    policies = [run_arrays(jax.device_get(learner.actor), i, run, sizes) for i, run in enumerate(runs)]
    ask(policies)
    while learner.step < total_steps:
        fresh = np.stack([pack(raw, run, sizes) for raw, run in zip(collectors.finish_round(), runs, strict=True)])
        ready, made_at = learner.actor, learner.step
        learner.add(fresh, train=learner.step >= start_steps)
        arrays = jax.device_get(ready)
        policies = [run_arrays(arrays, i, run, sizes) for i, run in enumerate(runs)]
        if learner.step < total_steps:
            ask(policies)
        yield made_at, policies
    arrays = jax.device_get(learner.actor)
    yield learner.step, [run_arrays(arrays, i, run, sizes) for i, run in enumerate(runs)]


def passed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]."""
    return before // every != after // every


def train_online(
    environment: str,
    algorithm: str = "sac",
    *,
    seeds: int | Sequence[int] = 1,
    preset: str = "quick",
    out: str | Path | None = None,
    steps: int | None = None,
    evaluate: bool = True,
    episodes: int = 10,
    evaluation_seed: int = 10_000,
    evaluate_every: int | None = None,
    workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    instances: int = 1,
    round_steps: int = 50,
    **overrides: Any,
) -> Run:
    """Trains in an environment, a Gymnasium id or a task's name: one update for every step, all seeds in one program.

    `steps` are environment steps, and the first `start_steps` of them are uniform actions. A float option given as a
    list is a grid, as in `sbac.train`. `out` is the run's folder; None writes nothing. Every `evaluate_every` steps
    (default: ten times) and at the end the policies play `episodes` episodes in worker processes. Data are gathered
    in rounds of `round_steps` steps by `instances` copies of the environment. A run that was interrupted cannot be
    continued, since its environments are gone: `resume` starts one where there is none, and returns a finished one.
    """
    from sbac.algorithms import find
    from sbac.environments.tasks import is_task
    from sbac.training.grid import groups, members
    from sbac.training.train import package_versions

    method = find(algorithm)
    if not method.online:
        raise UserError(f"{algorithm} learns from a log and not in an environment: use sbac.train")
    if instances < 1 or round_steps % instances:
        raise UserError(f"round_steps {round_steps}: expected a multiple of instances, {instances}")
    if steps is not None:
        overrides["steps"] = steps
    runs = members(method, preset, seeds, overrides)
    for name, count in (("episodes", episodes), ("evaluate_every", evaluate_every), ("workers", workers)):
        positive(name, count)
    record = {
        "format": FORMAT,
        "algorithm": algorithm,
        "preset": preset,
        "labels": [run.label for run in runs],
        "runs": [run.record() for run in runs],
        "environment": environment,
        "task": environment if is_task(environment) else None,
        "rounds": {"instances": instances, "steps": round_steps},
        "evaluation": {
            "environment": environment if evaluate else None,
            "episodes": episodes,
            "seed": evaluation_seed,
            "every": evaluate_every,
        },
        "versions": package_versions(),
    }
    with tempfile.TemporaryDirectory(prefix="sbac-") as scratch:
        folder = Path(scratch) / "run" if out is None else Path(out)
        launch = OnlineLaunch(folder, record, runs, workers, progress)
        if resume and (folder / "config.json").exists():
            open_folder(folder, json.loads(json.dumps(record)), resume=True, overwrite=False).close()
            if not all((folder / "policies" / f"{run.label}.safetensors").exists() for run in runs):
                raise UserError(f"{folder}: {algorithm} was interrupted and cannot be continued; use --overwrite")
            return Run.load(folder)
        with open_folder(folder, record, resume=False, overwrite=overwrite) as opened:
            opened.begun()
            for group, indices in enumerate(groups(runs)):
                launch.train(group, [runs[i] for i in indices])
        run = Run.load(folder)
        if out is None:
            run.folder = None
        return run


class OnlineLaunch:
    """Trains the groups of a launch and writes what a run's folder holds."""

    def __init__(
        self, folder: Path, record: dict[str, Any], runs: "Sequence[Member]", workers: int | None, progress: bool | None
    ) -> None:
        from sbac.training.together import use_compilation_cache

        use_compilation_cache()
        self.folder, self.record, self.workers, self.progress = folder, record, workers, progress
        name, make = environment_of(record["environment"])
        space = make()
        check_spaces(space, name)
        self.environment = name
        self.sizes = (space.observation_space.shape[0], space.action_space.shape[0])
        low, high = space.action_space.low, space.action_space.high
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise UserError(f"environment {name}: expected bounded actions, got {space.action_space}")
        ones = np.ones(self.sizes[0], np.float32)
        self.scale = {"observation_mean": 0 * ones, "observation_std": ones, "action_low": low, "action_high": high}
        space.close()

    def train(self, group: int, runs: "Sequence[Member]") -> None:
        """Trains one group of runs to the end."""
        from sbac.algorithms import find
        from sbac.evaluation.worker import Pool
        from sbac.training.evaluations import Evaluations
        from sbac.training.online.learner import Learner, OnlineRun, Rounds
        from sbac.training.progress import make_progress

        config: Any = runs[0].config
        total, settings = config.steps[0], self.record["evaluation"]
        instances, length = self.record["rounds"]["instances"], self.record["rounds"]["steps"]
        wanted = [OnlineRun(self.environment, *self.sizes, run.seed, run.config) for run in runs]
        capacity = min(1_000_000, math.ceil(total / length) * length)
        learner = Learner(find(self.record["algorithm"]), wanted, Rounds(instances, length, capacity))
        every = settings["every"] or max(1, math.ceil(total / EVALUATIONS))
        with ExitStack() as stack:
            evaluations = None
            if settings["environment"] is not None:
                pool = stack.enter_context(Pool(self.workers, len(runs)))
                evaluations = Evaluations(
                    self.folder, settings["environment"], settings["episodes"], settings["seed"], pool
                )
            collectors = stack.enter_context(Collectors(wanted, instances, length))
            bar = stack.enter_context(make_progress(self.progress))
            bar.phase("train", len(runs), 0, total)
            before = 0
            policies: list[Policy] = []
            for step, arrays in rounds(learner, collectors, config.start_steps, total):
                interrupts.check()
                last = step >= total
                if last or passed(before, step, max(1, total // LOGS)):
                    self._log(group, runs, step, learner)
                    bar.step(min(step, total), _note(evaluations))
                if last or passed(before, step, every):
                    policies = [self._policy(*pair, learner.actor.kind) for pair in zip(runs, arrays, strict=True)]
                    if evaluations is not None:
                        rows = [self._where(group, run, step) for run in runs]
                        evaluations.submit(f"{group:03d}-0-train-{step:010d}", policies, rows)
                if evaluations is not None:
                    evaluations.collect(wait=last)
                before = step
            for run, policy in zip(runs, policies, strict=True):
                policy.save(self.folder / "policies" / f"{run.label}.safetensors")

    def _where(self, group: int, run: "Member", step: int) -> dict[str, Any]:
        about = {"algorithm": self.record["algorithm"], "seed": run.seed, **run.grid}
        return about | {"group": group, "phase": "train", "step": step}

    def _policy(self, run: "Member", arrays: Mapping[str, Floats], kind: str) -> Policy:
        about = {"algorithm": self.record["algorithm"], "task": self.record["task"]}
        about |= {"label": run.label, "grid": list(run.grid), "environment": self.record["environment"]}
        scale = {f"scale/{name}": value for name, value in self.scale.items()}
        return Policy(kind, {**arrays, **scale}, about | run.record())

    def _log(self, group: int, runs: "Sequence[Member]", step: int, learner: "Learner") -> None:
        metrics = {name: np.asarray(values) for name, values in sorted(learner.metrics.items())}
        rows = [
            self._where(group, run, step) | {name: float(values[i]) for name, values in metrics.items()}
            for i, run in enumerate(runs)
        ]
        if metrics:
            files.append_rows(self.folder / "metrics.jsonl", rows)


def _note(evaluations: Any) -> str:
    latest: dict[str, float] = evaluations.latest if evaluations is not None else {}
    return "  ".join(f"{name} {value:.1f}" for name, value in latest.items())
