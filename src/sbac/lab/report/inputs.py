"""What a report is made of: runs and results folders as records, and where their policies lie."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbac.errors import UserError
from sbac.lab.cells import folder_of, is_results, read_cells
from sbac.lab.naming import collect, method_order
from sbac.lab.representing import chosen_by
from sbac.policy import Policy
from sbac.results.describe import describe
from sbac.results.measured import MeasuredRun
from sbac.results.series import Series
from sbac.runs import Run, policy_record, policy_setting
from sbac.trust.contenders import own_log

if TYPE_CHECKING:
    from sbac.report.page import Strip


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


def render_strips(inputs: Sequence[tuple[MeasuredRun, Path]]) -> "list[Strip]":
    """A rollout for every run, and for each dataset of a results folder: of the first method's best setting there."""
    from sbac.lab.report.strip import rollout_strip

    def folder_of_run(s: Series) -> Path:
        return next(folder for record, folder in inputs if record is s.record)

    series = [s for s in collect([record for record, _ in inputs]) if s.evaluated]
    here = [s for s in series if (folder_of_run(s) / "policies").is_dir()]
    strips: list[Strip] = []
    for data in dict.fromkeys(s.data for s in here):
        candidates = [s for s in here if s.data == data]
        method = min((s.method for s in candidates), key=method_order)
        best = max((s for s in candidates if s.method == method), key=chosen_by)
        seed = best.trials[0].seed
        for path in sorted((folder_of_run(best) / "policies").glob("*.safetensors")):
            policy, where = Policy.load(path), best.record.environment
            same = policy_record(policy).seed == seed and policy_setting(policy, best.setting) == best.setting
            if same and where is not None:
                strips.append(rollout_strip(path, where, f"{data}: {best.label}, seed {seed}"))
                break
    if not strips:
        raise UserError("--render: no policy of these runs is here to be shown")
    return strips
