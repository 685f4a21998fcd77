"""A run in a few lines of text: the last evaluation of every setting, over its seeds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ROW_KEYS = {"algorithm", "seed", "group", "phase", "step", "environment", "returns", "lengths", "scores", "versions"}


def last_evaluations(rows: Sequence[Mapping[str, Any]], phase: str | None = None) -> list[Mapping[str, Any]]:
    """The rows of the last evaluation of a phase (the run's last one if None), one per policy."""
    if not rows:
        return []
    wanted = phase or rows[-1]["phase"]
    of_phase = [row for row in rows if row["phase"] == wanted]
    last: dict[tuple[int, str], Mapping[str, Any]] = {}
    for row in of_phase:
        last[row["seed"], json.dumps(settings(row))] = row
    return list(last.values())


def source(config: Mapping[str, Any]) -> str:
    """What a run learned from, in a line."""
    if "data" not in config:
        return f"learned in {config['environment']}"
    data = config["data"]
    return f"data: {data['name']} ({data['kind']}), {data['rows']:,} rows"


def settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """The grid's values of a row."""
    return {k: v for k, v in row.items() if k not in ROW_KEYS and v is not None}


def measured(row: Mapping[str, Any]) -> list[float]:
    """Normalised scores where the task has them, returns elsewhere."""
    return row["scores"] if row["scores"] is not None else row["returns"]


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each setting: mean over seeds, standard deviation over seeds, worst episode."""
    by_setting: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = " ".join([row["algorithm"], *(f"{k}={_short(v)}" for k, v in settings(row).items())])
        by_setting.setdefault(name, []).append(row)
    table: list[dict[str, Any]] = []
    for name, group in by_setting.items():
        means = [float(np.mean(measured(row))) for row in group]
        table.append(
            {
                "name": name,
                "seeds": len(group),
                "episodes": len(group[0]["returns"]),
                "mean": float(np.mean(means)),
                "std": float(np.std(means, ddof=1)) if len(means) > 1 else None,
                "worst": float(min(min(measured(row)) for row in group)),
                "unit": "score" if group[0]["scores"] is not None else "return",
            }
        )
    return table


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def render(table: Sequence[Mapping[str, Any]]) -> str:
    """The table as aligned text."""
    if not table:
        return "not evaluated yet"
    unit = table[0]["unit"]
    head = ["policy", "seeds", "episodes", f"mean {unit}", "sd over seeds", "worst episode"]
    body = [
        [
            row["name"],
            str(row["seeds"]) if row["seeds"] else "",
            str(row["episodes"]),
            f"{row['mean']:.1f}",
            "" if row["std"] is None else f"{row['std']:.1f}",
            f"{row['worst']:.1f}",
        ]
        for row in table
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [head, *body]
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
