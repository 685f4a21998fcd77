"""Learning curves: the mean over seeds of every setting, with the spread between seeds."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sbac.errors import UserError
from sbac.files import write_atomic
from sbac.report.drawing import COLOURS, Figure, Picture, new_figure, png_bytes, save_png
from sbac.report.summary import known_setting, run_name, scores_or_returns
from sbac.results.describe import describe
from sbac.results.series import collect
from sbac.runs import Run


def curves(run: Run) -> dict[str, dict[int, list[float]]]:
    """For each setting and step (counted over all phases) the evaluations of its seeds.

    Where the policy of the last phase starts as the clone, its curves start there too.
    """
    common = run.record.common[0]
    phases = list(dict.fromkeys(row.place.phase for row in run.evaluation_rows))
    skipped = len(common.steps) - len(phases)
    before = {name: sum(common.steps[: skipped + i]) for i, name in enumerate(phases)}
    found: dict[str, dict[int, list[float]]] = {}
    clones: dict[int, list[float]] = {}
    for row in run.evaluation_rows:
        place = row.place
        is_clone = place.phase != phases[-1]
        name = f"clone ({place.phase})" if is_clone else run_name(place.algorithm, known_setting(place.setting))
        points = found.setdefault(name, {})
        points.setdefault(before[place.phase] + place.step, []).append(float(np.mean(scores_or_returns(row.episodes))))
        clones = points if is_clone else clones
    if common.start_from_clone:
        for points in found.values():
            points |= {step: values for step, values in clones.items() if step not in points}
    return {name: dict(sorted(points.items())) for name, points in found.items()}


def learning_curves(runs: Mapping[str, Run], path: Path, reference: Mapping[str, float] | None = None) -> None:
    """Draws the runs into one PNG; `reference` adds horizontal lines."""
    save_png(_draw(runs, reference or {}), path)


def plot(run: Run, path: Path | None = None) -> Picture:
    """The learning curves of a run, its clone, and the log's mean."""
    series = [s for s in collect([describe(run)]) if s.evaluated]
    if not series:
        raise UserError("a run that was not evaluated has no learning curve; train it with an environment")
    log = series[0].data_mean
    picture = Picture(png_bytes(_draw({"": run}, {} if log is None else {"the log": log})))
    if path is not None:
        write_atomic(path, picture.png)
    return picture


def _draw(runs: Mapping[str, Run], reference: Mapping[str, float]) -> Figure:
    figure, (axes,) = new_figure(1, 1, 7.0, 4.0)
    drawn = 0
    for label, run in runs.items():
        for name, points in curves(run).items():
            colour = COLOURS[drawn % len(COLOURS)]
            steps = np.array(sorted(points))
            mean = np.array([np.mean(points[s]) for s in steps])
            spread = np.array([np.std(points[s], ddof=1) if len(points[s]) > 1 else 0.0 for s in steps])
            marker = "o" if len(steps) == 1 else None
            axes.plot(steps, mean, color=colour, marker=marker, label=f"{label} {name}".strip())
            axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            drawn += 1
    for name, value in reference.items():
        axes.axhline(value, color="0.4", linestyle="--", linewidth=1, label=name)
    scored = any(row.episodes.scores is not None for run in runs.values() for row in run.evaluation_rows)
    axes.set_xlabel("gradient steps")
    axes.set_ylabel("normalised score" if scored else "return")
    axes.legend(frameon=False, fontsize="small")
    return figure
