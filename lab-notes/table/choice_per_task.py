"""SBAC against ReBRAC with a setting per task: as many settings each, none chosen on the training that is reported.

    python lab-notes/table/choice_per_task.py

Seeds 10 to 14, 200,000 steps a phase (`cells`). First the setting is the best of four on seeds 100 and 101, on the four
tasks that were trained with those (`development`). Then, on all nine, it is the best of three on the other seeds, by
their last evaluation during training: of SBAC several threes, and last all of its seven alphas.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sbac.lab.cells import read_cells
from sbac.lab.choosing import differences
from sbac.lab.naming import collect
from sbac.lab.representing import best_without_own_seed
from sbac.results.series import Series
from sbac.results.statistics import Floats
from sbac.text import within

RESULTS = Path(__file__).parent
DIALS = {"sbac": "alpha", "rebrac": "policy_penalty"}
FOUR = {"sbac": (0.25, 0.5, 1.0, 2.0), "rebrac": (0.01, 0.03, 0.1, 0.3)}
THEIRS = (0.03, 0.1, 0.3)
OURS = (
    (0.5, 1.0, 2.0),
    (0.25, 1.0, 4.0),
    (0.25, 0.5, 1.0),
    (0.125, 0.5, 2.0),
    (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
)
"""As many as theirs, and all that there are."""


def series_of(folder: Path, method: str) -> dict[tuple[str, float], Series]:
    """By task and setting: those of preset `tuned` with 200,000 steps a phase."""
    cells = [cell for cell in read_cells(folder) if (cell.algorithm, cell.preset) == (method, "tuned")]
    dial = DIALS[method]
    found = [s for s in collect(cells) if set(s.record.steps) == {200_000} and s.is_final]
    return {(s.data, float(str(s.setting[dial]))): s for s in found if dial in s.setting}


def chosen_on_other_seeds(method: str) -> dict[str, Floats]:
    before, reported = (series_of(folder, method) for folder in (RESULTS / "development", RESULTS))
    found: dict[str, Floats] = {}
    for task in sorted({task for task, _ in before}):
        best = max((x for x in FOUR[method] if (task, x) in before), key=lambda x: before[task, x].mean)
        now = reported[task, best]
        print(f"{method:7}{task:32}{best:g}: {before[task, best].mean:.1f} on seeds 100, 101, now {now.mean:.1f}")
        found[task] = now.scores
    return found


def seed_left_out(method: str, settings: Sequence[float]) -> dict[str, Floats]:
    reported = series_of(RESULTS, method)
    tasks = sorted({task for task, _ in reported})
    return {task: best_without_own_seed([reported[task, x] for x in settings]).scores for task in tasks}


def compare(ours: dict[str, Floats], theirs: dict[str, Floats]) -> str:
    found = differences(list(ours.values()), {"rebrac": [theirs[task] for task in ours]})["rebrac"]
    means = [np.mean([scores.mean() for scores in side.values()]) for side in (ours, theirs)]
    drawn = within(*found.tasks_drawn)
    return f"{means[0]:.1f} and {means[1]:.1f}, a difference of {within(*found.tasks_fixed)}, tasks drawn too {drawn}"


def main() -> None:
    print("four tasks, four settings each:", compare(*map(chosen_on_other_seeds, DIALS)))
    theirs = seed_left_out("rebrac", THEIRS)
    for alphas in OURS:
        names = ", ".join(f"{alpha:g}" for alpha in alphas)
        print(f"nine tasks, alphas {names}:", compare(seed_left_out("sbac", alphas), theirs))


if __name__ == "__main__":
    main()
