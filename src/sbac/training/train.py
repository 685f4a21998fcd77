"""`sbac.train`: from a log of decisions to policies, in one launch."""

import json
import platform
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbac.environments.opening import EnvSource, check_fits, check_known
from sbac.errors import UserError, positive, unknown

if TYPE_CHECKING:
    from sbac.runs import Run
    from sbac.training.launch import Launch

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco")


def train(
    data: Any,
    algorithm: str = "sbac",
    *,
    seeds: int | Sequence[int] = 1,
    preset: str = "quick",
    out: str | Path | None = None,
    steps: int | Sequence[int] | None = None,
    evaluate: bool = True,
    environment: EnvSource | None = None,
    episodes: int = 10,
    evaluation_seed: int = 10_000,
    evaluate_every: int | None = None,
    evaluate_at: Sequence[int] | None = None,
    workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    warm_start: str | Path | None = None,
    warm_phases: Sequence[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    **overrides: Any,
) -> "Run":
    """Trains every combination of the listed settings and seeds, all in one program.

    `data` is a Dataset or anything `sbac.load` takes. A config field given as a list is a grid: `alpha=[0.2, 2.0]`
    with `seeds=5` trains ten policies. `out` is the run's folder; None writes nothing. While training goes on,
    policies are evaluated in worker processes if the data's task, or `environment`, names an environment: at the
    end of each phase, and every `evaluate_every` steps of the last one, or at the steps `evaluate_at` of it.
    `warm_start` names a finished run whose networks this one starts from, in all phases or only in `warm_phases`.
    `progress` None shows a bar on a terminal.
    """
    from sbac.training.together import train_together

    positive("workers", workers)
    with tempfile.TemporaryDirectory(prefix="sbac-") as scratch:
        launch = prepare(
            data,
            algorithm,
            Path(scratch) / "run" if out is None else Path(out),
            seeds=seeds,
            preset=preset,
            steps=steps,
            evaluate=evaluate,
            environment=environment,
            episodes=episodes,
            evaluation_seed=evaluation_seed,
            evaluate_every=evaluate_every,
            evaluate_at=evaluate_at,
            resume=resume,
            overwrite=overwrite,
            warm_start=warm_start,
            warm_phases=warm_phases,
            **overrides,
        )
        (run,) = train_together([launch], workers=workers, checkpoint_seconds=checkpoint_seconds, progress=progress)
        if out is None:
            run.folder = None
        return run


def prepare(
    data: Any,
    algorithm: str,
    folder: Path,
    *,
    seeds: int | Sequence[int],
    preset: str,
    steps: int | Sequence[int] | None = None,
    evaluate: bool = True,
    environment: EnvSource | None = None,
    episodes: int,
    evaluation_seed: int,
    evaluate_every: int | None = None,
    evaluate_at: Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    warm_start: str | Path | None = None,
    warm_phases: Sequence[str] | None = None,
    **overrides: Any,
) -> "Launch":
    """Looks at everything that was asked for and makes the folder ready; the options are those of `train`."""
    from sbac.algorithms import find
    from sbac.data import Dataset, load
    from sbac.data.dataset import check_share
    from sbac.runs import FORMAT, read_config
    from sbac.training.folder import open_folder
    from sbac.training.grid import members
    from sbac.training.launch import Launch

    method = find(algorithm)
    if method.online:
        raise UserError(f"{algorithm} learns in an environment and not from a log: use sbac.train_online")
    dataset = data if isinstance(data, Dataset) else load(data)
    if steps is not None:
        overrides["steps"] = steps
    runs = members(method, preset, seeds, overrides, dataset.task)
    check_share(runs[0].config.validation)
    positive("episodes", episodes)
    positive("evaluate_every", evaluate_every)
    target = (environment if environment is not None else dataset.task) if evaluate else None
    if target is not None:
        check_known(target)
        if environment is not None or dataset.kind not in ("D4RL", "made", "embedded"):  # those are what they say
            check_fits(target, dataset.observations.shape[1], dataset.actions.shape[1])
    if warm_start is not None:
        read_config(Path(warm_start))
        phases = [phase.name for phase in method.phases]
        for name in warm_phases or ():
            if name not in phases:
                raise unknown(f"phase of {algorithm}", name, phases)
    record = {
        "format": FORMAT,
        "algorithm": algorithm,
        "preset": preset,
        "labels": [run.label for run in runs],
        "runs": [run.record() for run in runs],
        "data": {
            "name": dataset.name,
            "kind": dataset.kind,
            "task": dataset.task,
            "rows": len(dataset),
            "episodes": len(dataset.episodes),
            "hash": dataset.hash,
        },
        "evaluation": {
            "environment": getattr(target, "__name__", "environment") if callable(target) else target,
            "episodes": episodes,
            "seed": evaluation_seed,
            "every": evaluate_every,
            "at": None if evaluate_at is None else sorted({int(step) for step in evaluate_at}),
        },
        "warm_start": None if warm_start is None else {"run": str(warm_start), "phases": warm_phases},
        "versions": package_versions(),
    }
    record = json.loads(json.dumps(record))  # as it will be read back
    start = None if warm_start is None else Path(warm_start)
    if start is not None and folder.exists() and start.samefile(folder):
        raise UserError(f"{folder}: a run cannot start from itself; name another folder for it")
    opened = open_folder(folder, record, resume, overwrite)
    return Launch(folder, record, method, runs, dataset, target, opened, start, warm_phases)


def package_versions() -> dict[str, str]:
    """What the bits depend on."""
    from sbac import __version__

    found = {"python": platform.python_version(), "sbac": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
