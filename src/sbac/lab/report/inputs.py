"""What a report is made of: runs and results folders as records, and where their policies lie."""

from collections.abc import Iterable
from pathlib import Path

from sbac.errors import UserError
from sbac.lab.cells import folder_of, is_results, read_cells
from sbac.results.describe import describe
from sbac.results.measured import MeasuredRun
from sbac.runs import Run
from sbac.trust.contenders import own_log


def read_inputs(targets: Iterable[Path]) -> list[tuple[MeasuredRun, Path]]:
    """The records of runs and results folders, each with the folder of its run (which may not be here)."""
    inputs: list[tuple[MeasuredRun, Path]] = []
    for target in targets:
        if is_results(target):
            inputs += [(cell, folder_of(target, cell)) for cell in read_cells(target)]
        else:
            inputs.append((read_run(target), target))
    return inputs


def read_run(folder: Path) -> MeasuredRun:
    """A run's record; with its data's returns and actions where the data is still to be found."""
    if folder.is_dir() and not (folder / "config.json").exists():
        raise UserError(f"{folder}: neither a run's folder (no config.json) nor a results folder (no cells/)")
    run = Run.load(folder)
    try:
        return describe(run, own_log(run, None))
    except UserError:  # its log is not here, or it has none
        return describe(run)
