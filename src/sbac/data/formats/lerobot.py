"""LeRobot's datasets, versions 2 and 3: a folder with meta/info.json and Parquet files, without their videos.

`next.reward` and `next.done` are what followed the row's action. `next.done` does not say whether a time limit is
meant, so a row is terminal where `next.terminated` says it, or where the episode is done and `next.success` says so.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from sbac.data.formats.log import Format, Log, Rows, read_description, with_flags
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError

INFO = Path("meta") / "info.json"
STATES = ("observation.state", "observation.environment_state")


def recognises(path: Path) -> bool:
    """Whether a folder is one of LeRobot's."""
    return (path / INFO).is_file() and (path / "data").is_dir()


def open_dataset(folder: Path, columns: ColumnMap | None) -> Log:
    """The low-dimensional columns of a dataset, all episodes one after the other."""
    from sbac.data.formats import parquet  # and pyarrow, which is imported where it is needed only

    _check_version(folder / INFO)
    files = sorted((folder / "data").rglob("*.parquet"), key=_in_order)
    if not files:
        raise UserError(f"{folder}: no Parquet files in data/; expected a LeRobot dataset")
    names = _fields(parquet.columns_of(files[0]), columns, folder)
    log = parquet.open_files(folder, files, names)
    return with_flags(log, "success", ("terminals",), _done_with_success) if "success" in names else log


def _fields(stored: Sequence[str], columns: ColumnMap | None, folder: Path) -> dict[str, list[str]]:
    """The columns of each field: LeRobot's, unless the caller names others; `success` where terminals need it."""
    columns = columns or {}
    given = {
        field: members for field, members in match(stored, columns, str(folder), needed=()).items() if field in columns
    }
    usual = {
        "observations": [name for name in STATES if name in stored],
        "actions": ["action"],
        "rewards": ["next.reward"],
        "terminals": ["next.terminated"],
        "episode": ["episode_index"],
    }
    names = {field: members for field, members in usual.items() if members and set(members) <= set(stored)} | given
    if "terminals" in names:
        return names
    if "next.done" not in stored or "next.success" not in stored:
        raise UserError(
            f"{folder}: terminals: next.done does not say whether time limits are meant; say which column "
            "does with --columns terminals=COLUMN (columns=)"
        )
    return names | {"terminals": ["next.done"], "success": ["next.success"]}


def _done_with_success(block: Rows) -> Rows:
    return {"terminals": (block["terminals"].reshape(-1) != 0) & (block["success"].reshape(-1) != 0)}


def _check_version(path: Path) -> None:
    info = read_description(path, "LeRobot's description")
    version = info.get("codebase_version")
    if not (isinstance(version, str) and re.fullmatch(r"v[23](\.\d+)?", version)):
        raise UserError(f"{path}: codebase_version {version!r}; expected LeRobot's version 2 or 3")


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Sorts chunk-2 before chunk-10."""
    return [(int(text), "") if text.isdigit() else (-1, text) for text in re.split(r"(\d+)", str(path))]


LEROBOT = Format(recognises, open_dataset, folder="a LeRobot dataset (meta/info.json)", streams=True)
