"""A cell's file: everything measured about one method on one dataset, small enough to be committed.

One JSON file per cell, named after its key, so that results made on several machines are merged by copying their
folders together. Returns are kept raw, episode by episode; scores are computed when a table is made.
"""

import datetime
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac import files
from sbac.errors import UserError

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.runs import Run

Record = dict[str, Any]
FORMAT = 1
REQUIRED: dict[str, type] = {
    **dict.fromkeys(("key", "algorithm", "preset"), str),
    **dict.fromkeys(("data", "config", "protocol", "watched"), dict),
    **dict.fromkeys(("grid", "runs", "curves", "metrics", "final"), list),
}
ONLINE = "online"
HISTOGRAM_BINS = 25
ACTION_STATES = 256
_WHERE = {"algorithm", "seed", "group", "phase", "step"}


# --- From a run to its record -------------------------------------------------------------------------------------


def describe(run: "Run", data: "Dataset | None" = None) -> Record:
    """What a run measured. With its data, also how its actions and returns compare with the logged ones."""
    config = run.config
    grid = [name for name in config["runs"][0] if _differs(config["runs"], name) and name != "seed"]
    if "alpha" in config["runs"][0] and "alpha" not in grid:
        grid.append("alpha")  # the one setting that every table names
    record: Record = {
        "format": FORMAT,
        "algorithm": config["algorithm"],
        "preset": config["preset"],
        "data": dict(config.get("data") or _online(config)),
        "environment": config["evaluation"]["environment"],
        "grid": grid,
        "runs": [{"seed": r["seed"], **{name: r[name] for name in grid}} for r in config["runs"]],
        "config": {k: v for k, v in config["runs"][0].items() if k not in (*grid, "seed")},
        "watched": {k: config["evaluation"][k] for k in ("episodes", "seed")},
        "versions": config["versions"],
        "curves": _curves(run.evaluations, grid),
        "metrics": _metrics(run.metrics, grid),
    }
    if data is not None:
        record["data"]["returns"] = _histogram(data.returns)
        record["actions"] = _actions(run, data, grid)
    return record


def _online(config: Mapping[str, Any]) -> Record:
    """In place of data, for a run that learned in an environment."""
    from sbac.environments.opening import environment_of

    name, _ = environment_of(config["environment"])
    return {"name": name, "kind": ONLINE, "task": None, "rows": 0, "episodes": 0, "hash": ""}


def _differs(runs: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(run[name] != runs[0][name] for run in runs)


def _setting(row: Mapping[str, Any], grid: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in grid if row.get(name) is not None}


def _curves(rows: Iterable[Mapping[str, Any]], grid: Sequence[str]) -> list[Record]:
    """For each policy and phase the steps of its evaluations and the returns of their episodes."""
    found: dict[str, Record] = {}
    for row in rows:
        about = {"phase": row["phase"], "seed": row["seed"], "setting": _setting(row, grid)}
        curve = found.setdefault(json.dumps(about), {**about, "steps": [], "returns": []})
        curve["steps"].append(row["step"])
        curve["returns"].append(digits(row["returns"], 6))
    return list(found.values())


def _metrics(rows: Iterable[Mapping[str, Any]], grid: Sequence[str]) -> list[Record]:
    """For each phase and setting what was logged, as the mean over seeds."""
    found: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for row in rows:
        about = json.dumps({"phase": row["phase"], "setting": _setting(row, grid)})
        found.setdefault(about, {}).setdefault(row["step"], []).append(row)
    tables: list[Record] = []
    for about, by_step in found.items():
        names = sorted({name for rows in by_step.values() for row in rows for name in row} - _WHERE - set(grid))
        values = {name: [_mean(row.get(name) for row in rows) for rows in by_step.values()] for name in names}
        tables.append(json.loads(about) | {"steps": list(by_step), "values": values})
    return tables


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return digits([float(np.mean(known))], 4)[0] if known else None


def _histogram(values: NDArray[np.float64]) -> Record:
    counts, edges = np.histogram(values, HISTOGRAM_BINS)
    return {"mean": float(values.mean()), "edges": digits(edges, 6), "counts": counts.tolist()}


def _actions(run: "Run", data: "Dataset", grid: Sequence[str]) -> Record:
    """How often each action occurs, dimension by dimension: in the data, and by each setting's policies there."""
    rows = np.linspace(0, len(data) - 1, min(len(data), ACTION_STATES)).astype(int)
    states, low, high = data.observations[rows], data.action_low, data.action_high

    def counts(actions: np.ndarray) -> list[list[int]]:
        return [
            np.histogram(actions[:, i], HISTOGRAM_BINS, (float(low[i]), float(high[i])))[0].tolist()
            for i in range(actions.shape[1])
        ]

    by_setting: dict[str, list[np.ndarray]] = {}
    for policy in run.policies:
        by_setting.setdefault(json.dumps(_setting(policy.config, grid)), []).append(np.asarray(policy(states)))
    return {
        "low": digits(low, 6),
        "high": digits(high, 6),
        "data": counts(data.actions[rows]),
        "policies": [
            {"setting": json.loads(setting), "counts": counts(np.concatenate(actions))}
            for setting, actions in by_setting.items()
        ],
    }


def digits(values: ArrayLike, count: int) -> list[float | None]:
    """Rounded to some significant digits, which is what keeps the files small; None for what is not finite."""
    numbers: list[float] = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.{count}g}") if math.isfinite(value) else None for value in numbers]


def machine() -> str:
    """What a number was made on, without saying where: the device, or the processor."""
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return f"CPU, {platform.machine()}, {os.cpu_count()} cores"
    return f"{len(jax.devices())} x {device.device_kind}" if len(jax.devices()) > 1 else device.device_kind


def now() -> str:
    """To the second: of two cells with the same policies the later one counts."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat(timespec="seconds")


# --- Files --------------------------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """A name as a file may bear it."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", name).strip("._") or "data"


def stem(data: str, algorithm: str, key: str) -> str:
    return f"{slug(data)}/{slug(algorithm)}-{key}"


def cell_path(results: Path, record: Mapping[str, Any]) -> Path:
    return results / "cells" / f"{stem(record['data']['name'], record['algorithm'], record['key'])}.json"


def write_cell(results: Path, record: Mapping[str, Any]) -> Path:
    """One line for each entry of the longer lists, so that versions of a file can be compared."""
    path = cell_path(results, record)
    files.write_atomic(path, _lines(record).encode())
    return path


def _lines(record: Mapping[str, Any]) -> str:
    def plain(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    parts: list[str] = []
    for name, value in record.items():
        long = isinstance(value, list) and name in ("runs", "curves", "final", "metrics")
        text = "[\n" + ",\n".join(plain(entry) for entry in value) + "\n]" if long else plain(value)  # pyright: ignore[reportUnknownVariableType]
        parts.append(f"{plain(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read_cell(path: Path) -> Record:
    record = files.read_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise UserError(f"{path}: not a bench's cell (expected format {FORMAT})")
    found: Record = record
    for name, kind in REQUIRED.items():
        if not isinstance(found.get(name), kind):
            raise UserError(f"{path}: a damaged cell: its {name} is missing or not what it should be")
    if not re.fullmatch(r"[0-9a-f]{12}", found["key"]):  # it becomes part of a path
        raise UserError(f"{path}: a damaged cell: key {found['key']!r}; expected 12 hexadecimal digits")
    return found


def read_cells(results: Path) -> list[Record]:
    """All cells of a results folder, in a fixed order."""
    return [read_cell(path) for path in sorted((results / "cells").rglob("*.json"))]


def is_results(path: Path) -> bool:
    return (path / "cells").is_dir()


def merge(sources: Iterable[Path], into: Path) -> int:
    """Takes over the cells of other results folders; of two with the same key the more complete one stays."""
    taken = 0
    for source in sources:
        if not is_results(source):
            raise UserError(f"{source}: not a results folder (it has no cells/)")
        for record in read_cells(source):
            path = cell_path(into, record)
            if path.exists() and _complete(read_cell(path)) >= _complete(record):
                continue
            write_cell(into, record)
            taken += 1
    return taken


def _complete(record: Mapping[str, Any]) -> int:
    return min((len(entry["returns"]) for entry in record["final"]), default=0)
