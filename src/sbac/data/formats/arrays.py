"""Untrusted npz files and folders of npy files.

Nothing is unpickled. The size in a header is compared with that of the file before memory is taken for it.
"""

import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from sbac.data.columns import BOUNDS, SIDE_ARRAYS
from sbac.data.dataset import SOURCE_KINDS, Dataset
from sbac.data.formats.log import (
    FLOOR,
    Column,
    Format,
    Log,
    Slice,
    Written,
    is_file,
    log_of_arrays,
    one_line,
    product,
    read_names,
    require_file,
)
from sbac.data.naming import ColumnMap, match
from sbac.environments.tasks import is_task
from sbac.errors import UserError

TEXTS = ("name", "kind", "task", "environment")
"""What `Dataset.save` writes beside the columns and the bounds."""
UNREADABLE = (
    EOFError,
    OSError,
    ValueError,
    TypeError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""The errors of numpy and zipfile on a damaged file."""
LONGEST_HEADER = 10_000
LONGEST_TEXT = 2**16
"""Bytes of an array that is read whole: bounds and names."""


class Stored(NamedTuple):
    """Arrays as streams of npy's, in a folder or in an archive."""

    path: Path
    sizes: Mapping[str, int]
    """The bytes of each stream, by the array's name."""
    opened: Callable[[], AbstractContextManager[Callable[[str], IO[bytes]]]]
    """Opens the folder or the archive once, for any of its streams."""


def open_npz(path: Path, columns: ColumnMap | None) -> Log:
    """An npz file, with what `Dataset.save` wrote about it, if it did."""
    stored = in_archive(path)
    log = log_of_npy(stored, match(stored.sizes, columns, str(path)))
    texts = {name: text for name, text in small(stored, TEXTS).items() if text.dtype.kind == "U" and text.shape == ()}
    description = {name: str(text) for name, text in texts.items()}
    if description.get("kind") not in SOURCE_KINDS or (description.get("task") and not is_task(description["task"])):
        description = {}
    if ":" in description.get("environment", ""):  # a module's name in a file is not followed
        del description["environment"]
    if description.get("kind") == "user":  # known by its file's name
        description.pop("name", None)
    return replace(log, description={**log.description, **{name: text for name, text in description.items() if text}})


def write_npz(data: Dataset, path: Path) -> Written:
    data.save(path)
    return Written(len(data))


def open_folder(path: Path, columns: ColumnMap | None) -> Log:
    """A folder of npy files, each named by its column: observations.npy, actions.npy, ..."""
    files = {file.stem: file for file in sorted(path.glob("*.npy"))}

    @contextmanager
    def opened() -> Generator[Callable[[str], IO[bytes]]]:
        with _readable(path, "folder of npy files"), ExitStack() as stack:

            def stream(name: str) -> IO[bytes]:
                require_file(files[name])
                return stack.enter_context(files[name].open("rb"))

            yield stream

    sizes = {name: file.stat().st_size for name, file in files.items()}
    return log_of_npy(Stored(path, sizes, opened), match(files, columns, str(path)))


def write_folder(data: Dataset, folder: Path) -> Written:
    names = {"columns": np.array(json.dumps(data.columns))} if data.is_named else {}
    for name, column in {**data.arrays(), **data.side_arrays(), **data.bounds, **names}.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)
    return Written(len(data))


NPZ = Format(lambda path: is_file(path, ".npz"), open_npz, write_npz, suffixes=(".npz",))
NPY = Format(
    lambda path: path.is_dir() and any(path.glob("*.npy")),
    open_folder,
    write_folder,
    folder="npy files (observations.npy, ...)",
)


def log_of_npy(stored: Stored, names: Mapping[str, Sequence[str]]) -> Log:
    """The log of some arrays, with the bounds of the actions."""
    chosen = [name for parts in names.values() for name in parts]
    with stored.opened() as stream:
        declared = {name: _header(stream(name), name, stored)[0] for name in chosen}

    @contextmanager
    def opened(wanted: Collection[str]) -> Generator[Mapping[str, Slice]]:
        with stored.opened() as stream:
            yield {name: _reader(stream(name), name, stored) for name in wanted}

    size = stored.path.stat().st_size if stored.path.is_file() else sum(stored.sizes[name] for name in chosen)
    description: dict[str, Any] = {**small(stored, BOUNDS), **small(stored, SIDE_ARRAYS, FLOOR)}
    if (text := small(stored, ["columns"]).get("columns")) is not None and text.dtype.kind == "U" and text.shape == ():
        description["columns"] = read_names(str(text), stored.path)
    return log_of_arrays(stored.path, size, names, declared, opened, description)


def small(stored: Stored, names: Collection[str], most: int = LONGEST_TEXT) -> dict[str, NDArray[Any]]:
    """The arrays of these names with less than `most` bytes, read whole."""
    arrays: dict[str, NDArray[Any]] = {}
    with stored.opened() as stream:
        for name in names:
            if stored.sizes.get(name, most) < most:
                file = stream(name)
                column, fortran = _header(file, name, stored)
                arrays[name] = _values(file, column, column.shape, fortran)
    return arrays


def in_archive(path: Path) -> Stored:
    """The arrays of an npz file."""

    @contextmanager
    def archive() -> Generator[zipfile.ZipFile]:
        require_file(path)
        with _readable(path, "npz file (numpy.savez)"), zipfile.ZipFile(path) as opened:
            yield opened

    with archive() as opened:
        members = {member.filename[:-4]: member for member in opened.infolist() if member.filename.endswith(".npy")}

    @contextmanager
    def streams() -> Generator[Callable[[str], IO[bytes]]]:
        with archive() as opened, ExitStack() as stack:
            yield lambda name: stack.enter_context(opened.open(members[name]))

    return Stored(path, {name: member.file_size for name, member in members.items()}, streams)


@contextmanager
def _readable(path: Path, kind: str) -> Generator[None]:
    """Every failure to read it becomes a `UserError` of one line."""
    try:
        yield
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{path}: not a readable {kind}: {one_line(error)}") from error


def _reader(file: IO[bytes], name: str, stored: Stored) -> Slice:
    """Reads rows in their order. An array in Fortran's order is read whole."""
    column, fortran = _header(file, name, stored)
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


def _header(file: IO[bytes], name: str, stored: Stored) -> tuple[Column, bool]:
    """What an array declares, and whether it lies in Fortran's order. Its size must be that of what follows."""
    where = f"{stored.path}: {name}"
    short = npy.read_magic(file) == (1, 0)
    if int.from_bytes(file.read(2 if short else 4), "little") > LONGEST_HEADER:
        raise UserError(f"{where}: not a readable npy file: its header is too long")
    file.seek(npy.MAGIC_LEN)
    shape, fortran, dtype = (npy.read_array_header_1_0 if short else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise UserError(f"{where}: holds Python objects (a pickle), which are never loaded; store plain numbers")
    claimed, held = dtype.itemsize * product(shape), stored.sizes[name] - file.tell()
    if claimed != held:
        raise UserError(f"{where}: the header claims {shape} {dtype}, {claimed:,} bytes, but {held:,} follow it")
    return Column(tuple(int(length) for length in shape), dtype), fortran
