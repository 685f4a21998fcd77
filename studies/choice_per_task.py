"""SBAC against ReBRAC, each with a setting per task out of four, chosen on other trainings than those reported.

    python studies/choice_per_task.py

For each task the setting is the best of four on seeds 100 and 101 (results/development); what is reported are seeds 10
to 14 (results/cells), 200,000 steps a phase. A task whose chosen setting was not run on seeds 10 to 14 is left out.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbac.environments.tasks import normalised_score
from sbac.results.cells import read_cells
from sbac.results.choosing import differences

RESULTS = Path(__file__).parents[1] / "results"
GRIDS = {"sbac": ("alpha", (0.25, 0.5, 1.0, 2.0)), "rebrac": ("policy_penalty", (0.01, 0.03, 0.1, 0.3))}

Scores = dict[str, dict[float, NDArray[np.float64]]]
"""By task and setting: one for each seed."""


def scores_of(folder: Path, method: str, field: str) -> Scores:
    found: Scores = {}
    for cell in read_cells(folder):
        if (cell.algorithm, cell.preset, (cell.length or [0])[0]) != (method, "tuned", 200_000):
            continue
        by_setting: dict[float, list[float]] = {}
        for policy in cell.final or []:
            returns = np.array(policy.returns, np.float64)
            setting = float(str(policy.setting.get(field, cell.config.get(field))))
            mean = normalised_score(cell.data.name.replace("-made", "-v2"), returns).mean()
            by_setting.setdefault(setting, []).append(float(mean))
        task = found.setdefault(cell.data.name, {})
        task.update({setting: np.array(values) for setting, values in by_setting.items()})
    return found


def chosen(method: str) -> Mapping[str, NDArray[np.float64] | None]:
    """By task: the reported scores of the setting that other seeds chose; None where it was not run."""
    field, grid = GRIDS[method]
    before, reported = (scores_of(folder, method, field) for folder in (RESULTS / "development", RESULTS))
    found: dict[str, NDArray[np.float64] | None] = {}
    for task, tried in sorted(before.items()):
        best = max((setting for setting in tried if setting in grid), key=lambda setting: tried[setting].mean())
        found[task] = reported[task].get(best)
        score = "not run" if found[task] is None else f"{reported[task][best].mean():.1f}"
        print(f"{method:7}{task:32}{field} {best:g}: {tried[best].mean():.1f} before, {score}")
    return found


def main() -> None:
    ours, theirs = chosen("sbac"), chosen("rebrac")
    pairs = [(a, b) for a, b in ((ours[task], theirs[task]) for task in ours) if a is not None and b is not None]
    found = differences([a for a, _ in pairs], {"rebrac": [b for _, b in pairs]})["rebrac"]
    means = [np.mean([values.mean() for values in side]) for side in zip(*pairs, strict=True)]
    fixed, drawn = found.tasks_fixed, found.tasks_drawn
    print(f"{len(pairs)} tasks: {means[0]:.1f} and {means[1]:.1f}, a difference of {fixed.value:.1f}")
    print(f"95 %: [{fixed.low:.1f}, {fixed.high:.1f}], tasks drawn too [{drawn.low:.1f}, {drawn.high:.1f}]")


if __name__ == "__main__":
    main()
