"""Learning curves: the mean over seeds of every setting, with the spread between seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sbac.report.summary import measured, settings
from sbac.runs import Run

COLOURS = ("#0b6bcb", "#d9480f", "#2b8a3e", "#862e9c", "#5f3dc4", "#c2255c", "#087f5b", "#495057")


def curves(run: Run) -> dict[str, dict[int, list[float]]]:
    """For each setting and step (counted over all phases) the evaluations of its seeds.

    Where the policy of the last phase starts as the clone, its curves start there too.
    """
    steps = run.config["runs"][0]["steps"]
    phases = list(dict.fromkeys(row["phase"] for row in run.evaluations))
    before = {name: sum(steps[: len(steps) - len(phases) + i]) for i, name in enumerate(phases)}
    found: dict[str, dict[int, list[float]]] = {}
    for row in run.evaluations:
        values = settings(row)
        name = " ".join(
            [row["algorithm"], *(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())]
        )
        if row["phase"] != phases[-1]:
            name = f"clone ({row['phase']})"
        found.setdefault(name, {}).setdefault(before[row["phase"]] + row["step"], []).append(
            float(np.mean(measured(row)))
        )
    clones = [points for name, points in found.items() if name.startswith("clone ")]
    if clones and run.config["runs"][0].get("start_from_clone"):
        for points in found.values():
            points |= {step: values for step, values in clones[-1].items() if step not in points}
    return {name: dict(sorted(points.items())) for name, points in found.items()}


def learning_curves(runs: Mapping[str, Run], path: Path, reference: Mapping[str, float] | None = None) -> None:
    """Draws the runs into one PNG; `reference` adds horizontal lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    drawn: list[Any] = []
    for label, run in runs.items():
        for name, points in curves(run).items():
            colour = COLOURS[len(drawn) % len(COLOURS)]
            steps = np.array(sorted(points))
            mean = np.array([np.mean(points[s]) for s in steps])
            spread = np.array([np.std(points[s], ddof=1) if len(points[s]) > 1 else 0.0 for s in steps])
            marker = "o" if len(steps) == 1 else None
            drawn += axes.plot(steps, mean, color=colour, marker=marker, label=f"{label} {name}".strip())
            axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    for name, value in (reference or {}).items():
        axes.axhline(value, color="0.4", linestyle="--", linewidth=1, label=name)
    scored = any(row["scores"] is not None for run in runs.values() for row in run.evaluations)
    axes.set_xlabel("gradient steps")
    axes.set_ylabel("normalised score" if scored else "return")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
