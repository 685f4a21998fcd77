"""Reading untrusted npz files and folders of npy files.

Nothing is unpickled. The size in a header is compared with that of the file before memory is taken for it.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from sbac.data.formats.log import Column, Log, Read, log_of_arrays, product
from sbac.errors import UserError

UNREADABLE = (EOFError, OSError, ValueError, TypeError, RuntimeError, MemoryError, SyntaxError, tokenize.TokenError)
"""The errors of numpy and zipfile on a damaged file."""
LONGEST_HEADER = 10_000
LONGEST_TEXT = 2**16
"""Bytes of an array that is read whole: bounds and names."""

Fields = Callable[[Collection[str]], Mapping[str, list[str]]]
"""Chooses, among the names of all arrays, those of each field."""


def require_file(path: Path) -> None:
    """Refuses pipes, sockets and devices, whose reading might never end."""
    if not path.is_file():
        raise UserError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")


def open_npz(path: Path, fields: Fields, beside: Collection[str]) -> Log:
    """An npz file; `beside` names the small arrays that are read at once, into `about`."""
    with _archive(path) as archive:
        members = _members(archive)
        chosen = fields(members)
        declared = {
            name: _declared(archive, members[name], f"{path}: {name}") for parts in chosen.values() for name in parts
        }
        about = {
            name: _whole(archive, members[name], f"{path}: {name}")
            for name in beside
            if name in members and members[name].file_size < LONGEST_TEXT
        }

    @contextmanager
    def opened(names: Collection[str]) -> Generator[Mapping[str, Read]]:
        with _archive(path) as archive, ExitStack() as stack:
            found = _members(archive)
            yield {
                name: _reader(stack.enter_context(archive.open(found[name])), found[name].file_size, f"{path}: {name}")
                for name in names
            }

    return log_of_arrays(path, path.stat().st_size, chosen, declared, opened, about)


def open_npy_folder(path: Path, fields: Fields, beside: Collection[str]) -> Log:
    """A folder of npy files, each named by its column: observations.npy, actions.npy, ..."""
    files = {file.stem: file for file in sorted(path.glob("*.npy"))}
    chosen = fields(files)
    declared: dict[str, Column] = {}
    for name in (part for parts in chosen.values() for part in parts):
        with _npy(files[name]) as file:
            declared[name] = _header(file, files[name].stat().st_size, str(files[name]))[0]
    about: dict[str, NDArray[Any]] = {}
    for name in beside:
        if name in files and files[name].stat().st_size < LONGEST_TEXT:
            with _npy(files[name]) as file:
                about[name] = _array(file, files[name].stat().st_size, str(files[name]))

    @contextmanager
    def opened(names: Collection[str]) -> Generator[Mapping[str, Read]]:
        with ExitStack() as stack:
            yield {
                name: _reader(stack.enter_context(_npy(files[name])), files[name].stat().st_size, str(files[name]))
                for name in names
            }

    size = sum(files[name].stat().st_size for name in declared)
    return log_of_arrays(path, size, chosen, declared, opened, about)


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an npz file."""
    with _archive(path) as archive:
        return list(_members(archive))


@contextmanager
def _archive(path: Path) -> Generator[zipfile.ZipFile]:
    require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except UserError:
        raise
    except (zipfile.BadZipFile, zlib.error, *UNREADABLE) as error:
        raise UserError(f"{path}: not a readable npz file (numpy.savez): {one_line(error)}") from error


@contextmanager
def _npy(path: Path) -> Generator[IO[bytes]]:
    require_file(path)
    try:
        with path.open("rb") as file:
            yield file
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{path}: not a readable npy file: {one_line(error)}") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {m.filename[:-4]: m for m in archive.infolist() if m.filename.endswith(".npy")}


def _declared(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Column:
    with archive.open(member) as file:
        return _header(file, member.file_size, where)[0]


def _whole(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    with archive.open(member) as file:
        return _array(file, member.file_size, where)


def _array(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    column, fortran = _header(file, size, where)
    return _values(file, column, column.shape, fortran)


def _reader(file: IO[bytes], size: int, where: str) -> Read:
    """Reads rows in their order. An array in Fortran's order is read whole."""
    column, fortran = _header(file, size, where)
    if fortran:
        whole = _values(file, column, column.shape, fortran=True)
        return lambda start, stop: whole[start:stop]
    return lambda start, stop: _values(file, column, (stop - start, *column.shape[1:]), fortran=False)


def _values(file: IO[bytes], column: Column, shape: tuple[int, ...], fortran: bool) -> NDArray[Any]:
    wanted = column.dtype.itemsize * product(shape)
    data = file.read(wanted)
    if len(data) != wanted:
        raise EOFError("the file ends too early")
    return np.frombuffer(data, column.dtype).reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes], size: int, where: str) -> tuple[Column, bool]:
    """What one npy stream of `size` bytes declares, and whether it lies in Fortran's order.

    The size in the header must be that of the rest.
    """
    short = npy.read_magic(file) == (1, 0)
    if int.from_bytes(file.read(2 if short else 4), "little") > LONGEST_HEADER:
        raise UserError(f"{where}: not a readable npy file: its header is too long")
    file.seek(npy.MAGIC_LEN)
    shape, fortran, dtype = (npy.read_array_header_1_0 if short else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise UserError(f"{where}: holds Python objects (a pickle), which are never loaded; store plain numbers")
    claimed, held = dtype.itemsize * product(shape), size - file.tell()
    if claimed != held:
        raise UserError(f"{where}: the header claims {shape} {dtype}, {claimed:,} bytes, but {held:,} follow it")
    return Column(tuple(int(length) for length in shape), dtype), fortran


def one_line(error: Exception) -> str:
    """The error's message without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
