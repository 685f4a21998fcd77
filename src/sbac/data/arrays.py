"""Reading npz files and folders of npy files without trusting them.

Nothing is unpickled. What a header claims is held against what lies on the disk before any memory is taken for it.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from sbac.errors import UserError

FLOOR = 256 * 2**20
EXPANSION = 100


def memory_limit(path: Path) -> int:
    """The most bytes a file may turn into: 100 times its size, and at least 256 MiB."""
    return max(FLOOR, EXPANSION * path.stat().st_size)


def refuse_larger(path: Path, claimed: int) -> None:
    """A compressed file that claims to be far larger than it is would take all memory: refuse it unread."""
    if claimed > memory_limit(path):
        size = path.stat().st_size
        raise UserError(f"{path}: claims {claimed:,} bytes of data, but the file holds {size:,}; refusing to expand it")


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The numeric and text arrays of an npz file, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            refuse_larger(path, sum(member.file_size for member in members))
            arrays: dict[str, NDArray[Any]] = {}
            for member in members:
                with archive.open(member) as file:
                    arrays[member.filename[:-4]] = _read(file, member.file_size, f"{path}: {member.filename[:-4]}")
            return arrays
    except UserError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{path}: not a readable npz file (numpy.savez): {one_line(error)}") from error


def read_npy_folder(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a folder, each named by its file: observations.npy, actions.npy, ..."""
    return dict(_npy_files(path))


def _npy_files(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    for file_path in sorted(path.glob("*.npy")):
        try:
            with file_path.open("rb") as file:
                yield file_path.stem, _read(file, file_path.stat().st_size, str(file_path))
        except UserError:
            raise
        except (EOFError, OSError, ValueError) as error:
            raise UserError(f"{file_path}: not a readable npy file: {one_line(error)}") from error


def _read(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """One npy stream of `size` bytes, whose header must claim exactly what follows it."""
    version = npy.read_magic(file)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(file)
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
