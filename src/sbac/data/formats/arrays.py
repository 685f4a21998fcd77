"""Reading untrusted npz files and folders of npy files.

Nothing is unpickled. The size in a header is compared with that of the file before memory is taken for it.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from sbac.errors import UserError

UNREADABLE = (EOFError, OSError, ValueError, TypeError, RuntimeError, MemoryError, SyntaxError, tokenize.TokenError)
"""The errors of numpy and zipfile on a damaged file."""
FLOOR = 256 * 2**20
EXPANSION = 100
LONGEST_HEADER = 10_000


def require_file(path: Path) -> None:
    """Refuses pipes, sockets and devices, whose reading might never end."""
    if not path.is_file():
        raise UserError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")


def memory_limit(path: Path) -> int:
    """The most bytes a file may turn into: 100 times its size, and at least 256 MiB."""
    return max(FLOOR, EXPANSION * path.stat().st_size)


def refuse_larger(path: Path, claimed: int) -> None:
    """Refuses, without reading it, a compressed file whose contents would be far larger than the file."""
    if claimed > memory_limit(path):
        size = path.stat().st_size
        raise UserError(f"{path}: claims {claimed:,} bytes of data, but the file holds {size:,}; refusing to expand it")


Choose = Callable[[Collection[str]], Collection[str]]
"""Chooses, among the names of all arrays, those to read."""


def read_npz(path: Path, choose: Choose = list) -> dict[str, NDArray[Any]]:
    """The chosen arrays of an npz file by name; without `choose`, all of them."""
    require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {m.filename[:-4]: m for m in archive.infolist() if m.filename.endswith(".npy")}
            chosen = {name: members[name] for name in choose(members)}
            refuse_larger(path, sum(member.file_size for member in chosen.values()))
            arrays: dict[str, NDArray[Any]] = {}
            for name, member in chosen.items():
                with archive.open(member) as file:
                    arrays[name] = _read(file, member.file_size, f"{path}: {name}")
            return arrays
    except UserError:
        raise
    except (zipfile.BadZipFile, zlib.error, *UNREADABLE) as error:
        raise UserError(f"{path}: not a readable npz file (numpy.savez): {one_line(error)}") from error


def read_npy_folder(path: Path, choose: Choose) -> dict[str, NDArray[Any]]:
    """The chosen arrays of a folder, each named by its file: observations.npy, actions.npy, ..."""
    files = {file.stem: file for file in sorted(path.glob("*.npy"))}
    return {name: _read_npy(files[name]) for name in choose(files)}


def _read_npy(path: Path) -> NDArray[Any]:
    require_file(path)
    try:
        with path.open("rb") as file:
            return _read(file, path.stat().st_size, str(path))
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{path}: not a readable npy file: {one_line(error)}") from error


def _read(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """Reads one npy stream of `size` bytes; the size in its header must be that of the rest."""
    short = npy.read_magic(file) == (1, 0)
    if int.from_bytes(file.read(2 if short else 4), "little") > LONGEST_HEADER:
        raise UserError(f"{where}: not a readable npy file: its header is too long")
    file.seek(npy.MAGIC_LEN)
    shape, _, dtype = (npy.read_array_header_1_0 if short else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise UserError(f"{where}: holds Python objects (a pickle), which are never loaded; store plain numbers")
    claimed = dtype.itemsize
    for length in shape:
        claimed *= int(length)
    held = size - file.tell()
    if claimed != held:
        raise UserError(f"{where}: the header claims {shape} {dtype}, {claimed:,} bytes, but {held:,} follow it")
    file.seek(0)
    return npy.read_array(file, allow_pickle=False)


def one_line(error: Exception) -> str:
    """The error's message without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
