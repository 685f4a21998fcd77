"""`sbac data convert`: a dataset written in another format. What a format cannot hold is said, never made up."""

import os
import tempfile
from pathlib import Path

from sbac.data.dataset import Dataset
from sbac.data.formats import find, format_to_write, those_that
from sbac.data.formats.log import Written
from sbac.errors import UserError, unknown


def convert(data: Dataset, out: str | Path, form: str | None = None, overwrite: bool = False) -> Written:
    """Writes a dataset as a file or a folder.

    form: the name of a format (default: by the name of `out`; one without a suffix is a Minari folder).
    """
    path = Path(out)
    if form is not None and form not in those_that("write"):
        raise unknown("format", form, those_that("write"))
    chosen = format_to_write(path) if form is None else find(form)
    assert chosen.write is not None
    if path.exists() and not (overwrite and path.is_file() and not chosen.folder):
        raise UserError(f"{path}: exists already; {'name a new folder' if chosen.folder else 'give --overwrite'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place, and moved there when it is whole.
        with tempfile.TemporaryDirectory(prefix=".sbac-", dir=path.parent) as scratch:
            target = Path(scratch) / path.name
            if chosen.folder:
                target.mkdir()
            written = chosen.write(data, target)
            for file in target.rglob("*") if chosen.folder else [target]:
                _flush(file)
            os.replace(target, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    return written


def _flush(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())
