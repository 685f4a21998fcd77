"""Files that are whole or absent: JSON, JSON lines and safetensors. Every file of the package is written here."""

import atexit
import contextlib
import fcntl
import functools
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sbac.errors import UNSHOWABLE, UserError

if TYPE_CHECKING:
    from sbac.records import Json

Arrays = dict[str, NDArray[Any]]
TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")
"""The names of files that are being written. A kill leaves them behind."""
LONGEST_NAME = 255
"""Bytes of a file's name, on all usual file systems."""
SCRATCH = "sbac-run-"
YOUNG = 60.0
"""Seconds in which a folder that nobody has locked may be one that is just being made."""
NOT_NUMBERS = frozenset({str, dict, list})
"""The types of JSON's values that have parts or can be shown."""
DEEPEST = 64
"""Levels of a JSON value: far more than any record has, and few enough for functions that call themselves."""


def write_atomic(path: Path, data: bytes | Callable[[IO[bytes]], object]) -> None:
    """Writes a temporary file, flushes it to the disk and renames it: a reader sees the old file or the new one.

    `data` are the bytes, or a function that writes them to the open file.
    """
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        check_output(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Nobody can foresee the name, and O_EXCL follows no link that bears it.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(handle, "wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def in_home(path: str) -> Path:
    """A path with its ~ replaced. A user without a home, as in many containers, has nothing there."""
    return Path(os.path.expanduser(path))


@functools.cache
def cache_folder() -> Path:
    """Where to keep what can be made again: in the user's home, or where that cannot be, for this process alone."""
    folder = in_home("~/.cache/sbac")
    if folder.is_absolute() and os.environ.get("HOME") != "":  # which would mean /
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and not folder.stat().st_mode & stat.S_IWOTH:
                return folder
    # Others must not be able to put anything there: what is cached are programs.
    path = tempfile.mkdtemp(prefix="sbac-cache-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    print(f"note: no home folder that can be written; compiled programs are kept in {path} meanwhile", file=sys.stderr)
    return Path(path)


@contextlib.contextmanager
def scratch_folder() -> Generator[Path, None, None]:
    """A folder that is gone afterwards. What kills have left of such folders is removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), _locked(left):
            if left.stat().st_uid == os.getuid() and time.time() - left.stat().st_mtime > YOUNG:
                remove(left)
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as path, _locked(Path(path)):
        yield Path(path)


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None, None, None]:
    """The folder while no other process has it; an OSError where one has."""
    handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def check_output(path: Path) -> None:
    """Refuses a path that cannot become a file: a folder, or a device, whose place the file would take."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: {_kind(mode)}; expected the name of a file")


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"


def read_bytes(path: Path) -> bytes:
    """What a file holds. A device or a pipe, which may have no end, is an OSError as a folder is."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise OSError(f"it is {_kind(mode)}")
    return path.read_bytes()


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def finite(value: "Json") -> "Json":
    """A JSON value with null in place of every number that is not finite, which JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def read_json(path: Path) -> Any:
    try:
        return decoded(read_bytes(path), finite_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as JSON ({error})") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _finite_number(word: str) -> float:
    return float(word) if math.isfinite(float(word)) else _no_number(word)


def decoded(text: str | bytes, finite_only: bool = False) -> Any:
    """The JSON value of a file, or a ValueError. It is not too deep, and its texts can be shown."""
    constant, number = (_no_number, _finite_number) if finite_only else (None, None)
    try:
        value: Any = json.loads(text, parse_constant=constant, parse_float=number)
    except RecursionError:
        raise ValueError("too deep") from None
    check_json(value)
    return value


def check_json(value: Any) -> None:
    """A ValueError for what would be too deep to work with, or dangerous to show."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        texts = [entry for entry in level if isinstance(entry, str)]
        if UNSHOWABLE.search("".join(texts)):
            raise ValueError(f"{next(filter(UNSHOWABLE.search, texts))[:40]!r} has control characters")
        inner: list[Any] = [
            [*entry, *entry.values()] if isinstance(entry, dict) else entry
            for entry in level
            if isinstance(entry, dict | list)
        ]
        level = [entry for entries in inner for entry in entries if type(entry) in NOT_NUMBERS]
        if not level:
            return
    raise ValueError("too deep")


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds JSON lines in one write."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        check_output(path)
        with open(os.open(path, flags, 0o666), "ab") as f:
            f.write(text.encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON-lines file; a last line cut by a kill is left out, any other damage is an error."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); expected lines of JSON") from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            row: Json = decoded(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number} is damaged; expected one JSON object a line: mend or remove it")
        rows.append(row)
    return rows


def rewrite_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def remove(path: Path) -> None:
    """Removes a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def pack_arrays(arrays: Mapping[str, NDArray[Any]], header: dict[str, str] | None = None) -> bytes:
    """Arrays as the bytes of a safetensors file."""
    from safetensors.numpy import save

    # ascontiguousarray would turn 0-d arrays into 1-d ones.
    return save({name: np.array(array, order="C", copy=None) for name, array in arrays.items()}, header)


def unpack_arrays(data: bytes) -> Arrays:
    """Arrays from the bytes of a safetensors file."""
    from safetensors.numpy import load

    return load(data)


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], header: dict[str, str]) -> None:
    """Writes a safetensors file. Equal arrays with a header of one entry make equal files."""
    write_atomic(path, pack_arrays(arrays, header))


def read_safetensors(path: Path, expected: str) -> tuple[Arrays, dict[str, str]]:
    """The arrays and the header of a safetensors file; `expected`, such as "policy file", stands in the errors."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:  # pyright: ignore[reportUnknownVariableType]
            return _read_opened(file)
    except FileNotFoundError:
        raise UserError(f"{path}: no such {expected}") from None
    except (SafetensorError, OSError, UnicodeError) as error:
        raise UserError(f"{path}: not a {expected} ({error})") from None


def _read_opened(file: Any) -> tuple[Arrays, dict[str, str]]:
    return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (no mapping)


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
    """Writes a checkpoint: arrays, and what is known of them as JSON."""
    write_safetensors(path, arrays, {"meta": json.dumps(meta)})


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Reads a checkpoint."""
    arrays, header = read_safetensors(path, "checkpoint")
    try:
        return arrays, decoded(header.get("meta", "{}"))
    except ValueError as error:
        raise UserError(f"{path}: not a checkpoint ({error})") from None
