"""The final evaluation of a trained cell: many episodes of each saved policy, wherever there are cores to spare."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from sbac.bench.plan import Protocol
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.results.cells import Record, digits, read_cells, stem, write_cell

Say = Callable[[str], None]


def say_at_once(line: str) -> None:
    """A pipe or a file sees each line when it is written."""
    print(line, flush=True)


def is_final(record: Record, protocol: Protocol) -> bool:
    """Whether every policy has played its final episodes."""
    played = [len(entry["returns"]) for entry in record["final"]]
    return len(played) == len(record["runs"]) and min(played) >= protocol.final_episodes


def finish(record: Record, results: Path, protocol: Protocol, pool: Pool) -> Record:
    """Plays the final episodes of a trained cell's policies and completes its file."""
    from sbac.evaluation.evaluate_run import evaluate_policies

    folder = results / "runs" / stem(record["data"]["name"], record["algorithm"], record["key"])
    rows = evaluate_policies(folder, record["environment"], protocol.final_episodes, protocol.final_seed, pool)
    final = [
        {
            "seed": row["seed"],
            "setting": {name: row[name] for name in record["grid"] if name in row},
            "returns": digits(row["returns"], 6),
            "lengths": row["lengths"],
        }
        for row in rows
    ]
    if len(final) != len(record["runs"]):
        raise UserError(f"{folder}: {len(final)} policies; expected {len(record['runs'])}")
    finished = {**record, "protocol": asdict(protocol), "final": final}
    write_cell(results, finished)
    return finished


def evaluate_trained(results: Path, protocol: Protocol, workers: int | None = None, say: Say = say_at_once) -> int:
    """Plays the final episodes of every cell of a results folder that lacks them and whose policies are here."""
    played = 0
    with Pool(workers) as pool:
        for record in read_cells(results):
            folder = results / "runs" / stem(record["data"]["name"], record["algorithm"], record["key"])
            label = f"{record['data']['name']} {record['algorithm']}"
            if is_final(record, protocol):
                continue
            if not (folder / "policies").is_dir():
                say(f"{label}: its policies are not in {folder}")
                continue
            finish(record, results, protocol, pool)
            say(f"{label}: {protocol.final_episodes} episodes of each of {len(record['runs'])} policies played")
            played += 1
    return played
