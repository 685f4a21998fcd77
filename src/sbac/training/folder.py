"""A run's folder while it is written: who may write it, and what becomes of the run that is replaced."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

from sbac import files, interrupts
from sbac.callbacks import Callback, Callbacks
from sbac.errors import InUseError, UserError, path_of
from sbac.records import Json, as_json
from sbac.runs import Run, RunRecord, read_record

CONTENTS = (
    "config.json",
    "checkpoint",
    "policies",
    "metrics.jsonl",
    "evaluations.jsonl",
    "selection.json",
    "clone.safetensors",
    "trials.jsonl",
)
"""What belongs to a run, with what was said of its policies."""


@dataclass(frozen=True)
class Folder:
    """Where a run is written, and what becomes of one that lies there: continued, replaced, or left alone."""

    path: Path
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UserError(f"{self.path}: --resume continues a run and --overwrite replaces it; expected one of them")


def train_into(out: str | Path | None, callbacks: Sequence[Callback], train: Callable[[Path, Callback], Run]) -> Run:
    """Trains in the folder `out`; where that is None, in one that is removed in the end."""
    listening = Callbacks(callbacks)
    if out == "":
        raise UserError("out '': expected the name of a folder")
    with contextlib.nullcontext() if out is not None else files.scratch_folder() as scratch:
        run = train(path_of("out", out) if scratch is None else scratch / "run", listening)
        if out is None:
            run.folder = None
        listening.on_end(run)
        return run


class OpenFolder:
    """A run's folder, locked against other processes. The run that is replaced stays until the new one has begun.

    A run has begun when its first checkpoint is whole; one that fails before that leaves no trace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_new = False
        self._aside = path / ".replaced"
        self._handle = -1
        self._moving = threading.Lock()  # where an interrupt finds this thread busy, another one restores the folder
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InUseError(f"{path}: in use by another process") from None
        except OSError:
            pass  # a file system without locks
        interrupts.undoing.append(self.restore)

    def set_aside(self) -> None:
        """Moves the present run aside. What a kill has left aside already is older, and stays there."""
        if self._aside.is_symlink():
            raise UserError(f"{self._aside}: a link; expected a folder of sbac's own")
        self._aside.mkdir(exist_ok=True)
        for name in CONTENTS:
            if (self._aside / name).exists():
                files.remove(self.path / name)
            elif (self.path / name).exists():
                (self.path / name).rename(self._aside / name)

    def begun(self) -> None:
        """Removes the replaced run: the new one is under way."""
        with self._moving:
            self.is_new = False
            if self._aside.exists():
                gone = self.path / ".removed"
                files.remove(gone)
                self._aside.rename(gone)  # at once: half of an old run must never be brought back
                files.remove(gone)

    def restore(self) -> None:
        """Undoes a run that never began: the folder holds the replaced run again, or none."""
        with self._moving:
            if self._aside.exists():
                # The new run's record is written when the old run lies aside as a whole: all that is here is new then.
                if all((folder / "config.json").exists() for folder in (self.path, self._aside)):
                    self._clear()
                for entry in self._aside.iterdir():
                    files.remove(self.path / entry.name)
                    entry.rename(self.path / entry.name)
                self._aside.rmdir()
            elif self.is_new:
                self._clear()
                with contextlib.suppress(OSError):
                    self.path.rmdir()  # if nothing else is in it

    def _clear(self) -> None:
        for name in CONTENTS:
            files.remove(self.path / name)

    def close(self) -> None:
        with contextlib.suppress(ValueError):
            interrupts.undoing.remove(self.restore)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> "OpenFolder":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.begun()
        else:
            self.restore()
        self.close()


def open_folder(folder: Folder, record: RunRecord) -> OpenFolder:
    """Locks the folder and makes it ready for this run, or refuses it."""
    if folder.path.exists() and not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file; expected a folder for the run")
    try:
        files.check_json(as_json(record))  # it must be possible to read it again
    except ValueError as error:
        raise UserError(f"{folder.path}: cannot be written ({error})") from None
    opened = OpenFolder(folder.path)
    try:
        _occupy(opened, record, folder)
    except BaseException:
        opened.restore()
        opened.close()
        raise
    return opened


def _occupy(opened: OpenFolder, record: RunRecord, folder: Folder) -> None:
    path = folder.path
    if not (path / "config.json").exists():
        opened.restore()  # what a kill in the middle of a replacement left
    # A kill during the very first write leaves a folder with a temporary file alone.
    occupied = path.is_dir() and not all(is_temporary(entry) for entry in path.iterdir())
    if occupied:
        existing = read_record(path)  # a folder that is not a run is never touched
        for room in (path, path / "policies", path / "checkpoint"):
            for entry in room.glob("*.tmp"):
                if is_temporary(entry):
                    entry.unlink()
        if folder.resume:
            watched = existing.evaluation.environment
            if watched is not None and ":" in watched and record.evaluation.environment is None:
                raise UserError(
                    f"{path}: was evaluated in {watched!r}, a module that is not imported unasked; add --env"
                )
            changed = difference(_compared(existing), _compared(record))
            if changed:
                raise UserError(f"{path}: holds another run, and cannot be resumed as this one: {changed}")
            return
        if not folder.overwrite:
            raise UserError(f"{path}: holds a run already; use --resume to continue it or --overwrite to replace it")
        opened.set_aside()
    opened.is_new = not occupied
    files.write_json(path / "config.json", as_json(record))


def is_temporary(entry: Path) -> bool:
    """Whether an entry is a file that a kill has left half-written."""
    return files.TEMPORARY.fullmatch(entry.name) is not None and entry.is_file()


def _compared(record: RunRecord) -> Json:
    """What two records must agree in to be the same run: everything but the versions of the packages,
    the words of the command, what follows from the data, where that lies, what its columns are called, and how it was
    read."""
    return as_json(
        replace(record, versions={}, command=None, log=None, paths=None, reading=None, columns=None, notes=None)
    )


def difference(old: Json, new: Json, where: str = "") -> str | None:
    """The first place where two JSON values differ, as `place is old, not new`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        pairs = [(f"{where}.{key}".lstrip("."), old.get(key), new.get(key)) for key in sorted({*old, *new})]
    elif _is_list(old) and _is_list(new) and len(old) == len(new):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else f"{where} is {old!r}, not {new!r}"
    texts = (difference(a, b, place) for place, a, b in pairs)
    return next((text for text in texts if text is not None), None)


def _is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, Sequence) and not isinstance(value, str)
