"""`sbac.train_online`: runs that learn in an environment, their updates one program on the device.

A round is a fixed number of environment steps of every run and as many updates. Each run has a process that steps
its environment with the policy in numpy; while the device computes the updates of one round, the processes gather
the next, so a policy gathers data one or two rounds after it was made.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from sbac.algorithms.base import Actor
from sbac.callbacks import NO_CALLBACKS, Callback
from sbac.errors import UserError, positive
from sbac.evaluation.worker import Pool
from sbac.policy import Floats, Policy
from sbac.progress import Progress
from sbac.records import as_json
from sbac.runs import Failure, Place, Run, policy_file
from sbac.training.evaluations import Evaluations, interval, note, snapshot_name
from sbac.training.folder import Folder, open_folder, train_into
from sbac.training.grid import Member, groups
from sbac.training.loop import use_compilation_cache
from sbac.training.online.collector import Collectors
from sbac.training.online.learner import Learner, Sizes
from sbac.training.online.request import OnlineRequest
from sbac.training.request import Evaluating, Grid
from sbac.training.table import Scaling
from sbac.training.writer import actor_arrays, append_metrics, policy_config

LOGS = 50


class RoundEnd(NamedTuple):
    """What the runs have after so many environment steps: their policies, and the metrics of the updates before."""

    step: int
    policies: list[dict[str, Floats]]
    metrics: dict[str, Floats]

    def is_finite(self, run: int) -> bool:
        arrays = [*self.policies[run].values(), *(column[run] for column in self.metrics.values())]
        return all(bool(np.isfinite(array).all()) for array in arrays)


def rounds(learner: Learner, collectors: Collectors, total_steps: int) -> Iterator[RoundEnd]:
    """Trains round by round. While the device works on a round, yields the moment before it."""
    runs, kind = learner.runs, learner.actor.kind
    configs: list[Any] = [run.config for run in runs]  # of a method that learns online: with the two fields below
    start_steps: int = configs[0].start_steps
    noise: list[float] = [config.exploration for config in configs]

    def ask(moment: RoundEnd) -> None:
        collectors.start_round(kind, moment.policies if learner.step >= start_steps else None, noise)

    good = _moment(learner.step, learner.actor, {}, learner)
    ask(good)
    while learner.step < total_steps:
        fresh = np.stack(collectors.finish_round())
        step, actor, metrics = learner.step, learner.actor, learner.metrics
        learner.add(fresh, train=learner.step >= start_steps)
        moment = _moment(step, actor, metrics, learner)
        # An environment may not bear actions that are no numbers: a run that has failed gathers with a good policy.
        chosen = [moment if moment.is_finite(i) else good for i in range(len(runs))]
        good = moment._replace(policies=[one.policies[i] for i, one in enumerate(chosen)])
        if learner.step < total_steps:
            ask(good)
        yield moment
    yield _moment(learner.step, learner.actor, learner.metrics, learner)


def _moment(step: int, actor: Actor, metrics: Mapping[str, Array], learner: Learner) -> RoundEnd:
    actor = jax.device_get(actor)
    policies = [actor_arrays(actor, row) for row in range(len(learner.runs))]
    return RoundEnd(step, policies, {name: np.asarray(column) for name, column in metrics.items()})


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
    callbacks: Sequence[Callback] = (),
    instances: int = 1,
    round_steps: int = 50,
    **overrides: Any,
) -> Run:
    """Trains in an environment: one update for every environment step, all seeds in one program.

    A run that was interrupted cannot be continued, since its environments are gone.

    environment: a task's name or a Gymnasium id.
    algorithm: the method's name.
    seeds: how many, counted from 0, or a list of them.
    preset: the settings to start from.
    out: the run's folder; None writes nothing.
    steps: environment steps; the first `start_steps` of them are uniform actions.
    evaluate: whether policies play whole episodes while training goes on, in worker processes.
    episodes: how many they play in each evaluation.
    evaluation_seed: the seed of the first of these episodes.
    evaluate_every: steps between evaluations; None: a tenth of all. Training ends with one.
    workers: evaluation processes; None: one per core.
    resume: return the finished run in `out`; start it where there is none.
    overwrite: replace the run in `out`.
    progress: whether to show a bar; None: on a terminal.
    callbacks: objects that hear of metrics, evaluations and the end (`sbac.Callback`), such as loggers.
    instances: copies of the environment that a run steps side by side.
    round_steps: environment steps of a run in a round.
    overrides: fields of the method's config. A list of numbers is a grid, as in `sbac.train`.
    """
    positive("workers", workers)

    def training(path: Path, listening: Callback) -> Run:
        request = OnlineRequest(
            environment=environment,
            algorithm=algorithm,
            folder=Folder(path, resume, overwrite),
            grid=Grid(seeds, preset, steps, overrides),
            evaluating=Evaluating(evaluate, None, episodes, evaluation_seed, evaluate_every),
            instances=instances,
            round_steps=round_steps,
        )
        return train_in_environment(request, workers=workers, progress=progress, callbacks=listening)

    return train_into(out, callbacks, training)


def train_in_environment(
    request: OnlineRequest,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    callbacks: Callback = NO_CALLBACKS,
) -> Run:
    """Trains what is asked for, or returns it if it is to be resumed and finished."""
    use_compilation_cache()
    folder = request.folder.path
    if request.folder.resume and (folder / "config.json").exists():
        open_folder(request.folder, request.record).close()
        if not all(policy_file(folder, run.label).exists() for run in request.runs):
            raise UserError(f"{folder}: {request.algorithm} was interrupted and cannot be continued; use --overwrite")
        return Run.load(folder)
    with open_folder(replace(request.folder, resume=False), request.record) as opened:
        if opened.is_new:
            opened.begun()  # what was logged is kept; a run that is replaced stays until this one has its policies
        for group, indices in enumerate(groups(request.runs)):
            OnlineTraining(request, group, [request.runs[i] for i in indices], callbacks).run(workers, progress)
    return Run.load(folder)


class OnlineTraining:
    """Trains one group of runs, and writes what their folder holds."""

    def __init__(
        self, request: OnlineRequest, group: int, runs: Sequence[Member], callbacks: Callback = NO_CALLBACKS
    ) -> None:
        self._request, self._group, self._runs, self._callbacks = request, group, runs, callbacks
        self._folder = request.folder.path
        self._phase = request.method.phases[0].name
        self._total, length = runs[0].config.steps[0], request.round_steps
        sizes = Sizes(request.spaces.observations, request.spaces.actions)
        capacity = min(1_000_000, math.ceil(self._total / length) * length)
        self._learner = Learner(request.method, runs, sizes, length, capacity)
        self._good: dict[str, tuple[int, Mapping[str, Floats]]] = {}
        self._failed: dict[str, Policy] = {}

    def run(self, workers: int | None, progress: bool | None) -> None:
        request, learner, total = self._request, self._learner, self._total
        watch = request.record.evaluation
        with ExitStack() as stack:
            evaluations = None
            if watch.environment is not None:
                pool = stack.enter_context(Pool(workers, len(self._runs)))
                evaluations = Evaluations(self._folder, request.record, watch.environment, pool, self._callbacks)
            where, seeds = request.spaces.environment, [run.seed for run in self._runs]
            collectors = stack.enter_context(Collectors(where, seeds, request.instances, request.round_steps))
            bar = stack.enter_context(Progress(progress))
            bar.begin(f"{self._phase} ({len(self._runs)} runs)" if len(self._runs) > 1 else self._phase, total)
            before = 0
            policies: list[Policy] = []
            for moment in rounds(learner, collectors, total):
                self._note_failures(moment)
                step, arrays, metrics = moment
                last = step >= total
                if last or passed(before, step, max(1, total // LOGS)):
                    if metrics:
                        self._callbacks.on_metrics(append_metrics(self._folder, self._places(step), metrics))
                    bar.reach(min(step, total), "" if evaluations is None else note([evaluations.latest]))
                if last or passed(before, step, interval(watch, total)):
                    policies = [self._policy(run, weights) for run, weights in zip(self._runs, arrays, strict=True)]
                    if evaluations is not None:
                        name = snapshot_name(self._group, 0, self._phase, step)
                        evaluations.submit(name, policies, self._places(step))
                if evaluations is not None:
                    evaluations.collect(wait=last)
                before = step
            for run, policy in zip(self._runs, policies, strict=True):
                self._failed.get(run.label, policy).save(policy_file(self._folder, run.label))

    def _note_failures(self, moment: RoundEnd) -> None:
        """Keeps the last good policies of the runs whose numbers are no longer finite."""
        for i, run in enumerate(self._runs):
            if run.label in self._failed:
                continue
            if moment.is_finite(i) or run.label not in self._good:
                self._good[run.label] = moment.step, moment.policies[i]
                continue
            kept_step, arrays = self._good.pop(run.label)
            policy = self._policy(run, arrays)
            policy.config["failed"] = as_json(Failure(self._phase, moment.step, self._phase, kept_step))
            self._failed[run.label] = policy

    def _places(self, step: int) -> list[Place]:
        return [
            Place(self._request.algorithm, run.seed, run.grid, self._phase, step, self._group) for run in self._runs
        ]

    def _policy(self, run: Member, arrays: Mapping[str, Floats]) -> Policy:
        spaces = self._request.spaces
        zeros, ones = np.zeros(spaces.observations), np.ones(spaces.observations)
        scaling = Scaling(zeros, ones, spaces.action_low, spaces.action_high, 0.0, 1.0)
        config = policy_config(run, self._request.algorithm, self._request.record.task)
        config["environment"] = self._request.environment
        return Policy(self._learner.actor.kind, {**arrays, **scaling.arrays()}, config)
