"""LeRobot's datasets, versions 2 and 3: a folder with meta/info.json and Parquet files, without their videos.

`next.reward` and `next.done` are what followed the row's action. `next.done` does not say whether a time limit is
meant, so a row is terminal where `next.terminated` says it, or where the episode is done and `next.success` says so.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sbac.data.formats.arrays import one_line
from sbac.data.formats.log import Column, Log, Rows, with_flags
from sbac.data.formats.parquet import open_parquet
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError
from sbac.records import Json

INFO = Path("meta") / "info.json"
STATES = ("observation.state", "observation.environment_state")
LONGEST = 2**24


def is_dataset(folder: Path) -> bool:
    """Whether a folder is one of LeRobot's."""
    return (folder / INFO).is_file() and (folder / "data").is_dir()


def open_dataset(folder: Path, columns: ColumnMap | None) -> Log:
    """The low-dimensional columns of a dataset, all episodes one after the other."""
    _check_version(folder / INFO)
    files = sorted((folder / "data").rglob("*.parquet"), key=_in_order)
    if not files:
        raise UserError(f"{folder}: no Parquet files in data/; expected a LeRobot dataset")
    success = False

    def choose(names: Sequence[str]) -> Mapping[str, list[str]]:
        nonlocal success
        given = columns or {}
        found = {field: parts for field, parts in match(names, columns, str(folder)).items() if field in given}
        own = {
            "observations": [name for name in STATES if name in names],
            "actions": ["action"],
            "rewards": ["next.reward"],
            "terminals": ["next.terminated"],
            "episode": ["episode_index"],
        }
        for field, parts in own.items():
            if parts and all(name in names for name in parts):
                found.setdefault(field, parts)
        if "terminals" not in found:
            if "next.done" not in names or "next.success" not in names:
                raise UserError(
                    f"{folder}: terminals: next.done does not say whether time limits are meant; say which column "
                    "does with --columns terminals=COLUMN (columns=)"
                )
            success = True
            found |= {"terminals": ["next.done"], "success": ["next.success"]}
        return found

    log = open_parquet(folder, files, choose)
    return _with_success(log) if success else log


def _with_success(log: Log) -> Log:
    """The same log with `terminals` where an episode is done with success."""

    def flags(block: Rows) -> Rows:
        return {"terminals": (block["terminals"] != 0) & (block["success"] != 0)}

    return with_flags(log, "success", {"terminals": Column(log.columns["terminals"].shape[:1], np.dtype(bool))}, flags)


def _check_version(path: Path) -> None:
    try:
        if path.stat().st_size > LONGEST:
            raise UserError(f"{path}: expected LeRobot's description, got {path.stat().st_size:,} bytes")
        info: Json = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not readable as JSON: {one_line(error)}") from error
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if not (isinstance(version, str) and re.fullmatch(r"v[23](\.\d+)?", version)):
        raise UserError(f"{path}: codebase_version {version!r}; expected LeRobot's version 2 or 3")


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Sorts chunk-2 before chunk-10."""
    return [(int(text), "") if text.isdigit() else (-1, text) for text in re.split(r"(\d+)", str(path))]
