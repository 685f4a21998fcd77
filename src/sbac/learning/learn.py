"""`sbac.learn`: look at a log, plan, train, judge, write an answer. No environment is needed at any point.

Killed anywhere, the same call goes on: the plan is on disk before training begins, trainings resume, and answer.json is
written last.
"""

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sbac import files
from sbac.data import Dataset, load
from sbac.data.loading import Source
from sbac.data.misleading import misleading
from sbac.data.naming import ColumnMap
from sbac.errors import UserError, listed, not_negative, path_of
from sbac.learning.answer import POLICY_FILE, Answer, as_answer, read_answer
from sbac.learning.look import look
from sbac.learning.plan import (
    DEFAULT_MINUTES,
    PLAN_FILE,
    PLAN_FORMAT,
    LearnCandidate,
    LearnPlan,
    PlanRow,
    checked_minutes,
    pick,
    plan_text,
    read_plan,
    to_drop,
    write_plan,
)
from sbac.learning.probe import device_kind, slowness
from sbac.learning.writing import Learned, write
from sbac.policy import Policy
from sbac.policy.committee import committee
from sbac.progress import Progress
from sbac.runs import Run, policy_setting
from sbac.text import setting_label
from sbac.training.folder import OpenFolder, is_temporary
from sbac.training.train import train
from sbac.trust.choosing import Choice, select

MOST_JUDGED = 500_000
"""Rows that policies are judged on: of a larger log whole episodes are drawn."""
SHARED_PHASE = "estimate"
"""Of SBAC: the same for all alphas, and for the critics `mu` and `pi`."""


@dataclass(frozen=True)
class LearnRequest:
    """What is asked, beside the log."""

    minutes: float | None = None
    """None: those of the folder's plan, or the device's default."""
    out: Path | None = None
    seed: int = 0
    ends: str | None = None
    watch: Sequence[str] = ()
    progress: bool | None = None
    row: PlanRow | None = None
    """In place of the table's."""

    def __post_init__(self) -> None:
        not_negative("seed", self.seed)
        if self.minutes is not None:
            checked_minutes(self.minutes)
        if self.out is not None:
            check_free(self.out)

    def say(self, line: str) -> None:
        if self.progress is not False:
            print(line, file=sys.stderr, flush=True)


class Clock:
    """Tells the seconds since the last lap; the first one begins at `began`, by `time.monotonic`."""

    def __init__(self, began: float) -> None:
        self._lap = began

    def lap(self) -> float:
        now = time.monotonic()
        self._lap, took = now, now - self._lap
        return took


def learn(
    data: Source,
    *,
    minutes: float | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    ends: str | None = None,
    watch: Sequence[str] = (),
    columns: ColumnMap | None = None,
    progress: bool | None = None,
    row: PlanRow | None = None,
) -> Answer:
    """Learns a policy from a log within some minutes, and says what it is worth. No environment is needed.

    data: a Dataset, or anything that `sbac.load` takes.
    minutes: how long it may take, compiling included; None: 15 on a CPU, 10 on a GPU.
    out: the folder that everything is written to; None writes nothing. Called again with a folder that is not finished,
        it goes on; a finished one gives its answer again. With another `watch` or `ends` its policies are judged anew.
    seed: moves all seeds.
    ends: when an episode ends, such as "height < 0.8"; None: as the log shows it.
    watch: columns or rules whose change is told beside the gain, such as "glucose < 70".
    columns: which column of a file is which, as in `sbac.load`.
    progress: whether to say what is being done.
    row: a plan of one's own in place of the table's, for experiments.
    """
    clock = Clock(time.monotonic())
    folder = None if out is None else folder_of(out)
    request = LearnRequest(minutes, folder, seed, ends, listed("watch", watch), progress, row)
    return learn_from(load(data, columns=columns), request, clock)


def learn_from(data: Dataset, request: LearnRequest, clock: Clock) -> Answer:
    """The stages, one after the other. The clock runs since the log began to be read."""
    notes, problems = look(data, request.watch, request.ends), misleading(data)
    finished = None if request.out is None else read_answer(request.out)
    if request.out and finished and as_asked(request.out, finished.plan, data, request) == finished.plan:
        return as_answer(finished, None if finished.keep else Policy.load(request.out / POLICY_FILE), request.out)
    plan = plan_of(data, request)
    for line in (*(f"look: {text}" for text in (*notes, *problems)), plan_text(plan)):
        request.say(line)
    with workplace(request.out) as folder:
        begun = read_plan(folder)
        plan = plan.with_time("start", clock.lap()) if begun is None else as_asked(folder, begun, data, request)
        write_plan(folder, plan)
        clock.lap()
        plan, runs = train_all(data, plan, folder, clock, request)
        plan, choice, judged_on = judge(data, plan, runs, clock, request)
        request.say(f"write: {request.out or 'nothing'}, {left(plan)}")
        learned = Learned(data, judged_on, notes[1:], problems, runs, committees(runs), choice)
        answer, policy = write(learned, plan, folder, request.out, clock.lap)
        return as_answer(answer, policy, request.out)


# --- The plan and its folder ------------------------------------------------------------------------------------------


def plan_of(data: Dataset, request: LearnRequest) -> LearnPlan:
    """The plan that the folder has, or a new one."""
    begun = None if request.out is None else read_plan(request.out)
    if request.out is not None and begun is not None:
        return as_asked(request.out, begun, data, request)
    device = device_kind()
    minutes = DEFAULT_MINUTES[device] if request.minutes is None else request.minutes
    slow = slowness(data.observations.shape[1], data.actions.shape[1])
    row = request.row or pick(len(data), device, minutes, slow)
    about = data.name, data.hash, minutes, request.seed
    return LearnPlan(PLAN_FORMAT, *about, row, slow, request.ends, list(request.watch))


def folder_of(out: object) -> Path:
    """The folder that is named."""
    if out == "":
        raise UserError("out '': expected the name of a folder")
    return path_of("out", out)


def check_free(folder: Path) -> None:
    """Refuses a folder with something else in it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: a file; expected a folder")
    if folder.is_dir() and not (folder / PLAN_FILE).exists() and not all(map(is_temporary, folder.iterdir())):
        raise UserError(f"{folder}: not a folder of sbac learn (it has no {PLAN_FILE}); name another one with --out")


def as_asked(folder: Path, plan: LearnPlan, data: Dataset, request: LearnRequest) -> LearnPlan:
    """The plan of a folder with what is asked of the judge now. Another log, and another training, are refused.

    What is not asked again stays as it was. What is watched, and when an episode ends, only the judge asks: what is
    trained stays, and is judged anew.
    """
    if data.hash != plan.hash:
        raise UserError(f"{folder}: it is about another log, {plan.log}; name another folder with --out")
    minutes = plan.minutes if request.minutes is None else request.minutes
    for name, value in (("seed", request.seed), ("minutes", minutes)):
        before = getattr(plan, name)
        if value != before:
            raise UserError(f"{folder}: begun with {name} {before}, not {value}; name another folder with --out")
    return replace(plan, watch=list(request.watch) or plan.watch, ends=request.ends or plan.ends)


@contextmanager
def workplace(out: Path | None) -> Generator[Path, None, None]:
    """The folder, locked against other processes; or one that is gone afterwards."""
    if out is None:
        with files.scratch_folder() as scratch:
            yield scratch
    else:
        with OpenFolder(out):
            yield out


def left(plan: LearnPlan) -> str:
    seconds = max(0, round(60 * plan.minutes - plan.spent))
    return f"{seconds // 60}:{seconds % 60:02d} left"


# --- Training ---------------------------------------------------------------------------------------------------------


def train_all(
    data: Dataset, plan: LearnPlan, folder: Path, clock: Clock, request: LearnRequest
) -> tuple[LearnPlan, list[Run]]:
    """Trains the candidates; after the first one it is decided, once, which others there is time for."""
    runs: list[Run] = []
    for number, candidate in enumerate(plan.row.candidates, 1):
        if candidate.name in (plan.dropped or []):
            continue
        part = f"train {candidate.name}"
        request.say(f"train {number} of {len(plan.kept)}: {candidate.name}, {left(plan)}")
        was_begun = candidate_folder(folder, candidate).exists()
        runs.append(train_candidate(data, plan, candidate, folder, request.progress))
        took = clock.lap()
        if part not in plan.times:
            plan = plan.with_time(part, took)
        if plan.dropped is None:
            # Of a training that was taken up again only the last stretch was timed.
            took = max(took, plan.slowness * candidate.seconds) if was_begun else took
            plan = replace(plan, dropped=to_drop(plan, took))
        write_plan(folder, plan)
    return plan, runs


def candidate_folder(folder: Path, candidate: LearnCandidate) -> Path:
    return folder / "runs" / candidate.name


def train_candidate(
    data: Dataset, plan: LearnPlan, candidate: LearnCandidate, folder: Path, progress: bool | None
) -> Run:
    """Trains a candidate, or what is left of it."""
    row, start, home = plan.row, candidate.starts_from, candidate_folder(folder, candidate)
    if (home / "config.json").exists() and (run := Run.load(home)).is_finished:
        return run  # without a look at what it started from, which a moved folder has elsewhere
    options: dict[str, Any] = {**row.options}
    if start is not None:
        # Its path is a part of the run's record: the same from every folder that the command is called in.
        options |= {"warm_start": (folder / "runs" / start).resolve(), "warm_phases": [SHARED_PHASE]}
    return train(
        data,
        candidate.algorithm,
        settings=candidate.settings,
        seeds=plan.seeds,
        preset=row.preset,
        steps=row.steps if start is None else [0, *row.steps[1:]],
        evaluate=False,
        out=home,
        resume=True,
        progress=progress,
        **options,
    )


def committees(runs: Sequence[Run]) -> dict[str, Policy]:
    """The seeds of each setting as one policy, by a name for its file."""
    together: dict[str, list[Policy]] = {}
    for run in runs:
        for policy in run.policies:
            setting = policy_setting(policy, policy.config["grid"])
            parts = [run.record.algorithm, *(f"{name}={setting_label(value)}" for name, value in setting.items())]
            if policy.is_finite:
                together.setdefault("_".join(parts), []).append(policy)
    return {name: committee(members) for name, members in together.items() if len(members) > 1}


# --- Judging ----------------------------------------------------------------------------------------------------------


def judge(
    data: Dataset, plan: LearnPlan, runs: Sequence[Run], clock: Clock, request: LearnRequest
) -> tuple[LearnPlan, Choice, Dataset]:
    """All policies, their committees and the clone, from the log alone; of a large one, from episodes drawn of it."""
    share = MOST_JUDGED / len(data)
    drawn = data.split(share, plan.seed)[1] if share < 1 else None
    judged_on = drawn or data  # of a single episode nothing can be drawn
    members = committees(runs)
    count = sum(len(run.policies) for run in runs) + len(members) + 1
    request.say(f"judge: {count} policies, {left(plan)}")
    with Progress(request.progress) as bar:
        choice = select(
            [*runs, *members.values()],
            judged_on,
            effort=plan.row.effort,
            seed=plan.seed,
            progress=bar.reach_in,
            watch=plan.watch,
            ends=plan.ends,
        )
    return plan.with_time("judge", clock.lap()), choice, judged_on
