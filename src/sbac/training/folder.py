"""A run's folder while it is written: when it may be, and what becomes of the run it replaces."""

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sbac import files
from sbac.config import RETIRED
from sbac.errors import InUseError, UserError
from sbac.runs import read_config

CONTENTS = ("config.json", "checkpoint", "policies", "metrics.jsonl", "evaluations.jsonl")
UNFINISHED = "config.json.tmp"  # a folder with nothing else was left by a kill during the very first write


class OpenFolder:
    """A run's folder while it is written: no other process may, and what it replaces is kept until it has begun.

    A run has begun when its first steps are done; one that fails before leaves no trace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_new = False
        self._aside = path / ".replaced"
        self._handle = -1
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

    def set_aside(self) -> None:
        """Moves the run that is there out of the way; what a kill has left there already is older, and stays."""
        self._aside.mkdir(exist_ok=True)
        for name in CONTENTS:
            if (self._aside / name).exists():
                files.remove(self.path / name)
            elif (self.path / name).exists():
                (self.path / name).rename(self._aside / name)

    def begun(self) -> None:
        """The new run is under way; the old one goes."""
        self.is_new = False
        if self._aside.exists():
            gone = self.path / ".removed"
            files.remove(gone)
            self._aside.rename(gone)  # at once: half of an old run must never be brought back
            files.remove(gone)

    def restore(self) -> None:
        """The folder as it was before a run that never began: with the old run, or without any."""
        if self._aside.exists():
            for entry in self._aside.iterdir():
                files.remove(self.path / entry.name)
                entry.rename(self.path / entry.name)
            self._aside.rmdir()
        elif self.is_new:
            files.remove(self.path / "config.json")
            with contextlib.suppress(OSError):
                self.path.rmdir()  # if nothing else is in it

    def close(self) -> None:
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


def open_folder(path: Path, config: dict[str, Any], resume: bool, overwrite: bool) -> OpenFolder:
    """Makes the folder ready for this run, or says why it may not be."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: a file; expected a folder for the run")
    opened = OpenFolder(path)
    try:
        _occupy(opened, config, resume, overwrite)
    except BaseException:
        opened.restore()
        opened.close()
        raise
    return opened


def _occupy(opened: OpenFolder, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    path = opened.path
    if not (path / "config.json").exists():
        opened.restore()  # what a kill in the middle of a replacement left
    occupied = path.is_dir() and any(entry.name != UNFINISHED for entry in path.iterdir())
    if occupied:
        existing = read_config(path)  # a folder that is not a run is never touched
        if resume:
            changed = difference(existing | {"versions": None}, config | {"versions": None})
            if changed:
                raise UserError(f"{path}: holds another run, and cannot be resumed as this one: {changed}")
            return
        if not overwrite:
            raise UserError(f"{path}: holds a run already; use --resume to continue it or --overwrite to replace it")
        opened.set_aside()
    opened.is_new = not occupied
    files.write_json(path / "config.json", config)


def difference(old: Any, new: Any, where: str = "") -> str | None:
    """The first place where two JSON values differ, as `place: old, not new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys: list[str] = sorted((old.keys() | new.keys()) - RETIRED)
        return _first(difference(old.get(key), new.get(key), f"{where}.{key}".lstrip(".")) for key in keys)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return _first(difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(old, new, strict=True)))
    return None if old == new else f"{where} is {old!r}, not {new!r}"


def _first(found: Iterable[str | None]) -> str | None:
    return next(filter(None, found), None)
