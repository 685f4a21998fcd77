"""The commands that make cells again."""

import shlex
from collections.abc import Iterable

from sbac.algorithms import REGISTRY, find
from sbac.lab.cells import CellRecord
from sbac.results.measured import MeasuredRun


def bench_commands(records: Iterable[MeasuredRun]) -> list[str]:
    """The commands that make some cells again; runs that no bench made, and presets that are no more, are left out."""
    tasks: dict[str, list[str]] = {}
    for record in records:
        if isinstance(record, CellRecord) and not _is_of_the_past(record):
            source = record.environment if record.is_online else None
            tasks.setdefault(_options(record), []).append(source or record.data.name)
    return [f"sbac bench --tasks {shlex.join(dict.fromkeys(names))} {options}" for options, names in tasks.items()]


def _is_of_the_past(cell: CellRecord) -> bool:
    return cell.algorithm in REGISTRY and cell.preset not in find(cell.algorithm).presets


def _options(cell: CellRecord) -> str:
    words = [f"--algorithms {cell.algorithm}@{cell.preset}"]
    words.append("--seeds " + " ".join(map(str, cell.seeds)))
    if cell.length is not None:
        words.append("--steps " + " ".join(map(str, cell.length)))
    grid = [
        f"{cell.algorithm}.{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in cell.settings.items()
    ]
    words.append("--grid " + shlex.join(grid) if grid else "--no-grid")
    if cell.environment != cell.data.task and not cell.is_online:
        words.append(f"--env {cell.environment}")
    return " ".join(words)
