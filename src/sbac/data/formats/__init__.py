"""The registry: a data format is one file and one line below."""

import importlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sbac.errors import UserError, unknown

if TYPE_CHECKING:
    from sbac.data.formats.log import Format

# A format's name, its module and the `Format` in it. A path is of the first format that recognises it, so one that
# looks into a file stands before the one that goes by its suffix alone. Those that import pyarrow stand last.
REGISTRY = {
    "ogbench": "sbac.data.formats.ogbench:OGBENCH",
    "npz": "sbac.data.formats.arrays:NPZ",
    "minari": "sbac.data.formats.minari:MINARI",
    "lerobot": "sbac.data.formats.lerobot:LEROBOT",
    "npy": "sbac.data.formats.arrays:NPY",
    "d3rlpy": "sbac.data.formats.d3rlpy:D3RLPY",
    "hdf5": "sbac.data.formats.hdf5:HDF5",
    "parquet": "sbac.data.formats.parquet:PARQUET",
    "csv": "sbac.data.formats.csv_text:CSV",
}


def find(name: str) -> "Format":
    """The format of that name."""
    if name not in REGISTRY:
        raise unknown("format", name, REGISTRY)
    module, _, attribute = REGISTRY[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def format_of(path: Path) -> "Format":
    """The format of a file or a folder."""
    for form in map(find, REGISTRY):
        with suppress(UserError):  # a damaged file is left to the format that its suffix stands for, which says so
            if form.recognises(path):
                return form
    if path.is_dir():
        folders = [form.folder for form in map(find, REGISTRY) if form.folder]
        raise UserError(f"{path}: expected {', '.join(folders[:-1])} or {folders[-1]}")
    raise UserError(f"{path}: unknown kind of file; expected {', '.join(suffixes())} or a folder")


def is_log(path: Path) -> bool:
    """Whether a folder is a log of some format, and not a folder of logs."""
    with suppress(UserError):
        format_of(path)
        return True
    return False


def format_to_write(path: Path) -> "Format":
    """The format that the suffix of a new file stands for."""
    for form in map(find, REGISTRY):
        named = [path.name.lower().endswith(suffix) if suffix else not path.suffix for suffix in form.suffixes]
        if form.write is not None and any(named):
            return form
    raise UserError(f"{path}: unknown kind of file; expected {', '.join(suffixes())} or --format")


def suffixes() -> list[str]:
    """The suffixes of all formats."""
    return [suffix for form in map(find, REGISTRY) for suffix in form.suffixes if suffix]


def those_that(can: str) -> list[str]:
    """The names of the formats that can do something: "write" or "streams"."""
    return [name for name in REGISTRY if getattr(find(name), can)]
