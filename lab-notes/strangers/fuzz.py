"""Logs as nobody would write them, read by every command that reads a log: no traceback, no hang, no half file.

    python lab-notes/strangers/fuzz.py --first 0 --count 500

Every seed makes one log: a small process written as a table or as arrays, then up to four faults, then options that may
or may not fit it. `sbac data check`, `info` and `convert` read it. What they must not do is listed with its seed.
"""

import argparse
import contextlib
import gzip
import io
import json
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from numpy.random import Generator
from pyarrow import parquet

from sbac.cli import main

SECONDS = 30
"""Of the processor: what a command may take before it counts as hanging."""
ODD = [
    "",
    " ",
    "nan",
    "NULL",
    "inf",
    "-inf",
    "-999",
    "9999",
    "1e400",
    "abc",
    "1,5",
    "0x10",
    "TRUE",
    "٣",
    "\u202e7",
    "\x1b[2J",
]
NAMES = [
    "температура",
    "flow [m³/h]",
    "a+b",
    "-cost",
    "2*x",
    'quo"te',
    "a;b",
    "o0",
    "rewards",
    "\x1b[31m",
    "x" * 300,
    "",
    "🜁",
]
Table = dict[str, list[str]]


def process(random: Generator) -> dict[str, np.ndarray]:
    """Episodes of a small process."""
    rows, features = int(random.choice([1, 2, 7, 60, 400])), int(random.choice([1, 3, 20]))
    length = int(random.choice([1, 5, 50]))
    number = np.arange(rows) // length
    return {
        "episode": number,
        "time": np.arange(rows) % length * 60.0,
        **{f"obs_{i}": np.cumsum(random.normal(size=rows)).round(3) for i in range(features)},
        "action": random.uniform(-1, 1, rows).round(3),
        "reward": random.normal(size=rows).round(3),
        "terminal": ((np.arange(rows) % length == length - 1) & (number % 3 == 0)).astype(int),
    }


# --- Faults: each changes a table of texts ----------------------------------------------------------------------------


def odd_cells(table: Table, random: Generator) -> None:
    name = str(random.choice(list(table)))
    for row in random.integers(0, len(table[name]), random.integers(1, 6)) if table[name] else []:
        table[name][row] = str(random.choice(ODD))


def odd_name(table: Table, random: Generator) -> None:
    old, new = str(random.choice(list(table))), str(random.choice(NAMES))
    table[new] = table.pop(old)


def dropped(table: Table, random: Generator) -> None:
    del table[str(random.choice(list(table)))]


def shuffled(table: Table, random: Generator) -> None:
    order = random.permutation(max(map(len, table.values()), default=0))
    for name, column in table.items():
        table[name] = [column[i] for i in order if i < len(column)]


def constant(table: Table, random: Generator) -> None:
    name = str(random.choice(list(table)))
    table[name] = [str(random.choice(["0", "1", "1e30", "-3.4e38", "1e-40", "7"]))] * len(table[name])


def whole_actions(table: Table, random: Generator) -> None:
    if "action" in table:
        table["action"] = [str(value) for value in random.integers(0, random.choice([2, 5, 30]), len(table["action"]))]


def short_column(table: Table, random: Generator) -> None:
    name = str(random.choice(list(table)))
    table[name] = table[name][: len(table[name]) // 2]


def empty(table: Table, random: Generator) -> None:
    for name in table:
        table[name] = []


def wide(table: Table, random: Generator) -> None:
    count = max(map(len, table.values()), default=0)
    for number in range(300):
        table.setdefault(f"obs_{number}", [f"{value:.3f}" for value in random.normal(size=count)])


def next_states(table: Table, random: Generator) -> None:
    for name in [name for name in table if name.startswith("obs_")]:
        table[f"next_{name}"] = [*table[name][random.integers(0, 3) :], *table[name]][: len(table[name])]


def dates(table: Table, random: Generator) -> None:
    count = len(next(iter(table.values()), []))
    table["time"] = [f"2024-01-{1 + i % 28:02d} {i % 24:02d}:00:00" for i in range(count)]


def twice(table: Table, random: Generator) -> None:
    for name, column in table.items():
        table[name] = column * 2


FAULTS = [odd_cells] * 3 + [odd_name] * 2 + [dropped, shuffled, constant, whole_actions, short_column, empty, wide]
FAULTS += [next_states, dates, twice]


# --- Files ------------------------------------------------------------------------------------------------------------


def text_of(table: Table, random: Generator) -> bytes:
    mark = str(random.choice([",", ",", ";", "\t"]))
    count = max(map(len, table.values()), default=0)
    lines = [mark.join(f'"{name}"' if mark in name or '"' in name else name for name in table)]
    lines += [mark.join(column[i] if i < len(column) else "" for column in table.values()) for i in range(count)]
    ending = str(random.choice(["\n", "\r\n"]))
    text = ending.join(lines) + ending * int(random.integers(0, 3))
    return (b"\xef\xbb\xbf" if random.random() < 0.1 else b"") + text.encode(errors="replace")


def numbers(table: Table, vectors: bool = True) -> dict[str, Any]:
    """The columns as arrays; with `vectors`, single actions and observations as matrices."""

    def cell(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return float("nan")

    def vector(name: str) -> bool:
        return name == "action" or (name == "obs_0" and "obs_1" not in table)

    columns = {name: np.array([cell(text) for text in column]) for name, column in table.items()}
    return {name: column[:, None] if vectors and vector(name) else column for name, column in columns.items()}


def write(table: Table, folder: Path, random: Generator) -> Path:
    """The table in a format, or bytes of it."""
    kind = str(random.choice(["csv", "csv", "csv", "csv.gz", "CSV", "parquet", "npz", "hdf5"]))
    path = folder / f"log.{kind}"
    if kind.lower() == "csv":
        path.write_bytes(text_of(table, random))
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(text_of(table, random)))
    elif kind == "parquet":
        longest = max(map(len, table.values()), default=0)
        columns = {name: column + [""] * (longest - len(column)) for name, column in table.items()}
        as_numbers = numbers(columns, vectors=False)
        mixed = {name: as_numbers[name] if random.random() < 0.98 else columns[name] for name in columns}
        parquet.write_table(pa.table(mixed), path)
    elif kind == "npz":
        np.savez(path, **{name or "_": array for name, array in numbers(table).items() if "/" not in name})
    else:
        with h5py.File(path, "w") as file:
            for name, array in numbers(table).items():
                with contextlib.suppress(ValueError, TypeError):
                    file[name or "_"] = array
    if random.random() < 0.15:  # a part of it, or with a few bytes changed
        content = bytearray(path.read_bytes())
        for place in random.integers(0, max(1, len(content)), 4) if content else []:
            content[place] = int(random.integers(0, 256))
        path.write_bytes(
            bytes(content[: int(random.integers(0, len(content) + 1))] if random.random() < 0.5 else content)
        )
    return path


def options(table: Table, random: Generator) -> list[str]:
    words: list[str] = []
    names = [name for name in table if name and "," not in name and name.isprintable()]
    if random.random() < 0.5:
        pairs = [
            str(random.choice(["time=time", "episode=episode,time", "rewards=-reward", "rewards=2*reward-obs_0+1"]))
        ]
        if names and random.random() < 0.5:
            field = str(random.choice(["observations", "actions", "terminals", "timeouts", "episode"]))
            pairs.append(f"{field}={random.choice(names)}")
        words += ["--columns", *dict([(pair.split("=")[0], pair) for pair in pairs]).values()]
    words += ["--missing", str(random.choice(["refuse", "hold", "cut"]))] if random.random() < 0.6 else []
    words += ["--continuous"] if random.random() < 0.2 else []
    words += ["--horizon", str(random.integers(1, 60))] if random.random() < 0.2 else []
    words += ["--action-low", "-1e6", "--action-high", "1e6"] if random.random() < 0.3 else []
    return words


# --- What must not happen ---------------------------------------------------------------------------------------------


class Hanging(BaseException):
    """No OSError, as which a reader would report it."""


def stopped(*_: object) -> None:
    raise Hanging


def told(words: list[str]) -> tuple[int | str, str]:
    """The exit code and the output of a command, or what went wrong."""
    out = io.StringIO()
    signal.signal(signal.SIGPROF, stopped)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("error")
            return main(words), out.getvalue()
    except Hanging:
        return "hang", out.getvalue()
    except BaseException:
        return "traceback", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def wrongs(seed: int) -> tuple[list[dict[str, Any]], Counter[str]]:
    """What went wrong with the log of a seed, and how its commands ended."""
    random = np.random.default_rng([seed, 39])
    table: Table = {name: [f"{value:g}" for value in column] for name, column in process(random).items()}
    for fault in random.choice(np.array(FAULTS, object), random.choice([0, 1, 1, 2, 4])):
        if table:
            fault(table, random)
    found: list[dict[str, Any]] = []
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path, said = write(table, folder, random), options(table, random)
        written = folder / f"out.{random.choice(['npz', 'csv', 'parquet', 'hdf5'])}"
        commands: dict[str, list[str]] = {
            "check": ["data", "check", str(path), *said],
            "info": ["data", "info", str(path), *said],
            "convert": ["data", "convert", str(path), str(written), *said],
        }
        codes: dict[str, int | str] = {}
        outputs: list[str] = []
        for name, words in commands.items():
            code, output = told(words)
            codes[name] = code
            outputs.append(output[-300:])
            ends[f"{name} {code}"] += 1
            bad = code not in (0, 2) or "\x1b" in output or (code == 2 and f"\n{output}".count("\nerror:") != 1)
            if bad:
                found.append({"seed": seed, "command": words, "code": code, "output": output[-1500:]})
        if len(set(codes.values())) > 1:
            found.append({"seed": seed, "output": f"check, info and convert disagree: {codes} {said} {outputs}"})
        if written.exists() != (codes["convert"] == 0):
            found.append({"seed": seed, "output": "a file was written, or not, against the exit code"})
        if codes["convert"] == 0:
            bounds = (
                ["--action-low", "-1e6", "--action-high", "1e6", "--continuous"] if written.suffix == ".csv" else []
            )
            code, output = told(["data", "check", str(written), *bounds])
            if code != 0:
                found.append({"seed": seed, "output": f"what was written is not read: {output[-600:]}"})
    return found, ends


def run(first: int, count: int) -> int:
    found: list[dict[str, Any]] = []
    ends: Counter[str] = Counter()
    began = time.time()
    for seed in range(first, first + count):
        bad, ended = wrongs(seed)
        found += bad
        ends += ended
        for entry in bad:
            print(json.dumps(entry), flush=True)
    ended = ", ".join(f"{name}: {times}" for name, times in sorted(ends.items()))
    print(f"{count} logs from seed {first} on, {time.time() - began:.0f} s; {ended}; wrong: {len(found)}")
    return int(bool(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    asked = parser.parse_args()
    sys.exit(run(asked.first, asked.count))
