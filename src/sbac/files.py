"""Files that are whole or absent: everything this package writes goes through here."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sbac.errors import UserError


def write_atomic(path: Path, data: bytes) -> None:
    """Writes beside, flushes to the disk, renames over: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def finite(value: Any) -> Any:
    """A value with null for every number that is not finite: JSON has no other word for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownVariableType]


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON ({error})") from None


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds JSON lines in one write."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    try:
        with open(path, "ab") as f:
            f.write(text.encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON-lines file; a last line cut by a kill is left out, any other damage is an error."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number} is damaged; expected one JSON object a line")
        rows.append(row)  # pyright: ignore[reportUnknownArgumentType]
    return rows


def rewrite_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """A safetensors file with a JSON header, written atomically."""
    from safetensors.numpy import save

    # 0-d arrays must be kept contiguous without being promoted to 1-d.
    write_atomic(path, save({k: np.array(v, order="C") for k, v in arrays.items()}, {"meta": json.dumps(meta)}))


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as f:  # pyright: ignore[reportUnknownVariableType]
            header: dict[str, str] = f.metadata() or {}
            return {k: f.get_tensor(k) for k in f.keys()}, json.loads(header.get("meta", "{}"))  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a checkpoint ({error})") from None
