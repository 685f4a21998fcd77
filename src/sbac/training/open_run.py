"""A run whose folder is open, and the groups of policies that are left to train in it.

What is on disk at any moment can be resumed: a group's state file is replaced atomically and says how far it is. Rows
and snapshots beyond it are cut when the run is taken up again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbac import files
from sbac.callbacks import NO_CALLBACKS, Callback
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.runs import Place, RunRecord, placed_rows, policy_file
from sbac.training.checkpoint import BEGINNING, Checkpoint, Position, state_path
from sbac.training.evaluations import Evaluations, evaluation_steps, snapshot_name
from sbac.training.folder import OpenFolder, open_folder
from sbac.training.grid import Member, groups
from sbac.training.request import OfflineRequest


@dataclass(frozen=True, eq=False)
class OpenRun:
    """What is asked for, and the folder it is written to."""

    request: OfflineRequest
    opened: OpenFolder
    callbacks: Callback = NO_CALLBACKS

    @staticmethod
    def open(request: OfflineRequest, callbacks: Callback = NO_CALLBACKS) -> "OpenRun":
        """Makes the request's folder ready, or refuses it."""
        return OpenRun(request, open_folder(request.folder, request.record), callbacks)

    @property
    def folder(self) -> Path:
        return self.request.folder.path

    def phase_number(self, place: Place, where: str) -> int:
        """The number of the phase that a row is about; `where` names the row."""
        for number, phase in enumerate(self.request.method.phases):
            if phase.name == place.phase:
                return number
        raise UserError(f"{where}: phase {place.phase!r}; expected one of {self.request.algorithm}")

    def snapshot_of(self, place: Place, where: str) -> str:
        return snapshot_name(place.group, self.phase_number(place, where), place.phase, place.step)


@dataclass(frozen=True)
class Lead:
    """The group that trains the first phases of another one as well: its state file, and how many phases."""

    path: Path
    phases: int


@dataclass(frozen=True, eq=False)
class Group:
    """The policies of a run that share a program, perhaps with groups of other runs.

    They differ only in config fields that have one value per run.
    """

    open_run: OpenRun
    number: int
    runs: Sequence[Member]
    checkpoint: Checkpoint
    evaluations: Evaluations | None
    lead: Lead | None = None
    followed: Sequence[frozenset[str]] = ()
    """For each phase, the shared fields in which the groups that take it over differ from this one."""

    def start_of(self, phase: str) -> Checkpoint | None:
        """Where a phase that begins with another run's networks finds them."""
        start = self.open_run.request.warm_start
        if start is None or (start.phases and phase not in start.phases):
            return None
        return Checkpoint(state_path(Path(start.run), self.number), BEGINNING)

    @property
    def is_done(self) -> bool:
        """Whether all steps are done and every policy has its file."""
        trained = self.checkpoint.at.phase == len(self.open_run.request.method.phases)
        return trained and all(policy_file(self.open_run.folder, run.label).exists() for run in self.runs)

    def evaluation_steps(self, phase: int) -> list[int]:
        return evaluation_steps(self.open_run.request.record.evaluation, self.runs[0].config.steps, phase)


def take_up(open_run: OpenRun, pool: Pool | None) -> tuple[list[Group], Evaluations | None]:
    """All groups, those that are done too, and the evaluations, of which those that were under way begin again.

    Rows beyond the checkpoints are cut. `pool` plays in environments that have a name.
    """
    request, folder = open_run.request, open_run.folder
    members = [[request.runs[i] for i in indices] for indices in groups(request.runs)]
    checkpoints = [
        Checkpoint.find(state_path(folder, number), len(request.method.phases)) for number in range(len(members))
    ]
    finished = all(policy_file(folder, run.label).exists() for run in request.runs)
    if finished and not any(checkpoint.path.exists() for checkpoint in checkpoints):
        return [], None  # its checkpoint was removed

    def is_reached(place: Place, where: str) -> bool:
        if place.group not in range(len(checkpoints)):
            raise UserError(f"{where}: group {place.group}; expected one below {len(checkpoints)}")
        return Position(open_run.phase_number(place, where), place.step) <= checkpoints[place.group].at

    for name in ("metrics.jsonl", "evaluations.jsonl"):
        cut_rows(folder / name, request.record, is_reached)
    evaluations = None
    if request.watched_in is not None:
        evaluations = Evaluations(folder, request.record, request.watched_in, pool, open_run.callbacks)
    left = [
        Group(open_run, number, runs, checkpoint, evaluations)
        for number, (runs, checkpoint) in enumerate(zip(members, checkpoints, strict=True))
    ]
    if evaluations is not None:
        resubmit(open_run, evaluations, reached_snapshots(left))
    return left, evaluations


def resubmit(open_run: OpenRun, evaluations: Evaluations, reached: set[str]) -> None:
    """Restarts the evaluations of the snapshots that have no rows yet, or, after a kill, not all of them."""
    path = open_run.folder / "evaluations.jsonl"
    written, wanted = written_snapshots(open_run), evaluations.pending(reached)
    unfinished = {name for name, rows in wanted.items() if written[name] < rows}
    if any(written[name] for name in unfinished):
        cut_rows(
            path, open_run.request.record, lambda place, where: open_run.snapshot_of(place, where) not in unfinished
        )
    evaluations.resubmit(unfinished)


def cut_rows(path: Path, record: RunRecord, keep: Callable[[Place, str], bool]) -> None:
    """Leaves only the rows whose place is to be kept."""
    if path.exists():
        files.rewrite_rows(path, [row for place, row, where in placed_rows(path, record) if keep(place, where)])


def reached_snapshots(all_groups: Sequence[Group]) -> set[str]:
    """The names of the snapshots that were taken up to the checkpoints."""
    return {
        snapshot_name(group.number, index, phase.name, step)
        for group in all_groups
        for index, phase in enumerate(group.open_run.request.method.phases)
        for step in group.evaluation_steps(index)
        if Position(index, step) <= group.checkpoint.at
    }


def written_snapshots(open_run: OpenRun) -> Counter[str]:
    rows = placed_rows(open_run.folder / "evaluations.jsonl", open_run.request.record)
    return Counter(open_run.snapshot_of(place, where) for place, _, where in rows)
