"""`sbac.train`: from a log of decisions to policies, in one run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sbac.callbacks import Callback
from sbac.data.naming import ColumnMap
from sbac.environments.opening import EnvSource
from sbac.errors import UserError, listed, path_of, positive
from sbac.runs import Run, WarmStart
from sbac.training.folder import Folder, train_into
from sbac.training.loop import train_runs
from sbac.training.open_run import OpenRun
from sbac.training.request import Evaluating, Grid, OfflineRequest


def train(
    data: Any,
    algorithm: str = "sbac",
    *,
    seeds: int | Sequence[int] = 1,
    preset: str = "quick",
    out: str | Path | None = None,
    steps: int | Sequence[int] | None = None,
    settings: Sequence[Mapping[str, Any]] | None = None,
    evaluate: bool = True,
    environment: EnvSource | None = None,
    episodes: int = 10,
    evaluation_seed: int = 10_000,
    evaluate_every: int | None = None,
    evaluate_at: Sequence[int] | None = None,
    columns: ColumnMap | None = None,
    workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    warm_start: str | Path | None = None,
    warm_phases: Sequence[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    command: Sequence[str] | None = None,
    **overrides: Any,
) -> Run:
    """Trains every combination of the listed settings and seeds, all in one program.

    data: a Dataset, anything `sbac.load` takes, or a log larger than memory from `sbac.stream`.
    columns: which column of a file or of a DataFrame is which, as in `sbac.load`.
    algorithm: the method's name.
    seeds: how many, counted from 0, or a list of them.
    preset: the settings to start from; `quick` takes minutes on two cores.
    out: the run's folder; None writes nothing.
    steps: gradient steps, one number for every phase or one for each.
    settings: a grid that is no product of lists. `[{"critic": "mu", "alpha": 1.0}, {"critic": "pi", "alpha": 0.25}]`
        trains each of the two with every seed, and with every combination of the listed overrides.
    evaluate: whether policies play in an environment while training goes on, in worker processes.
    environment: where they play: a task's name, a Gymnasium id or a function; None: the environment of the data's task,
        if it has one.
    episodes: how many they play in each evaluation.
    evaluation_seed: the seed of the first of these episodes.
    evaluate_every: steps between evaluations in the last phase; None: a tenth of it. Each phase ends with one.
    evaluate_at: the steps of the last phase at which policies are evaluated, instead of `evaluate_every`.
    workers: evaluation processes; None: one per core.
    resume: continue the run in `out`; start it where there is none.
    overwrite: replace the run in `out`.
    warm_start: the folder of a finished run whose networks this one starts from.
    warm_phases: the phases that start from them; None: all.
    checkpoint_seconds: time between checkpoints.
    progress: whether to show a bar; None: on a terminal.
    callbacks: objects that hear of metrics, evaluations and the end (`sbac.Callback`), such as loggers.
    command: the words after `sbac train`, which config.json keeps for `sbac train --resume` alone.
    overrides: fields of the method's config. A list is a grid: `alpha=[0.2, 2.0]` with `seeds=5` trains ten policies.
        Names may be listed too: `critic=["mu", "pi"]`.
    """
    positive("workers", workers)
    _check_seconds(checkpoint_seconds)
    phases = None if warm_phases is None else listed("warm_phases", warm_phases)

    def training(path: Path, listening: Callback) -> Run:
        request = OfflineRequest(
            data=data,
            columns=columns,
            algorithm=algorithm,
            folder=Folder(path, resume, overwrite),
            grid=Grid(seeds, preset, steps, overrides, settings),
            evaluating=Evaluating(evaluate, environment, episodes, evaluation_seed, evaluate_every, evaluate_at),
            warm_start=None if warm_start is None else WarmStart(str(path_of("warm_start", warm_start)), phases),
            command=command,
        )
        open_run = OpenRun.open(request, listening)
        (run,) = train_runs([open_run], workers=workers, checkpoint_seconds=checkpoint_seconds, progress=progress)
        return run

    return train_into(out, callbacks, training)


def _check_seconds(seconds: object) -> None:
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise UserError(f"checkpoint_seconds {seconds!r}: expected a number of at least 0")
