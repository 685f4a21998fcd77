"""The final evaluation of a trained cell: many episodes of each saved policy, wherever there are cores to spare."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sbac.environments.opening import may_open
from sbac.errors import UserError
from sbac.evaluation.evaluate_run import ask_for, evaluate_policies
from sbac.evaluation.worker import Pool
from sbac.lab.cells import CellRecord, FinalRow, folder_of, path_of, write_cell
from sbac.lab.protocol import Protocol
from sbac.text import significant

Say = Callable[[str], None]


def say_at_once(line: str) -> None:
    """A pipe or a file sees each line when it is written."""
    print(line, flush=True)


def is_final(cell: CellRecord, protocol: Protocol) -> bool:
    return len(cell.final) == len(cell.runs) and cell.final_episodes >= protocol.final_episodes


def finish(
    cell: CellRecord, results: Path, protocol: Protocol, pool: Pool, environment: str | None = None
) -> CellRecord:
    """Plays the final episodes of a trained cell's policies and completes its file.

    `environment`: the one that was asked for. Any other is opened only if it is known, whatever the cell says.
    """
    folder = folder_of(results, cell)
    if cell.environment is not None and cell.environment != environment and not may_open(cell.environment):
        raise UserError(ask_for(path_of(results, cell), cell.environment))
    rows = evaluate_policies(folder, cell.environment, protocol.final_episodes, protocol.final_seed, pool)
    final = [
        FinalRow(
            row.seed,
            {name: row.setting[name] for name in cell.grid if name in row.setting},
            significant(row.episodes.returns, 6) if row.failed is None else [None] * protocol.final_episodes,
            row.episodes.lengths,
            None if row.failed is not None or played is None else [*significant(played, 6)],
        )
        for row in rows  # the last policy counts, and a run that failed has none
        for played in [row.episodes.discounted_returns]
    ]
    if len(final) != len(cell.runs):
        raise UserError(f"{folder}: {len(final)} policies; expected {len(cell.runs)}")
    # How the policies were watched while they trained is the training's to say.
    watched = replace(cell.protocol, final_episodes=protocol.final_episodes, final_seed=protocol.final_seed)
    finished = replace(cell, protocol=watched, final=final)
    write_cell(results, finished)
    return finished
