"""The setting that stands for a method.

A method may be represented in two ways: by one setting for all tasks, or by the best one for each task (the paper's
way). Both are chosen on the episodes of the last evaluation during training and reported on the final episodes, which
are others. One setting for all tasks may also have been fixed before, on other trainings. The best one for a task is
chosen anew for every seed, on the other seeds: a choice that is reported on the trainings it was made on is too good.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from sbac.lab.cells import CellRecord
from sbac.results.series import SeedResult, Series

ONE, BEST = "one", "best"
PRESET = "its preset"
WAYS = {ONE: "one setting for all tasks", BEST: "the best setting per task, chosen on the other seeds"}


def represent(series: Sequence[Series], way: str) -> dict[tuple[str, str], Series]:
    """For each (dataset, method) the series that stands for it; only those with all their final episodes can."""
    groups: dict[tuple[str, ...], list[Series]] = defaultdict(list)
    for s in series:
        if s.is_final:
            groups[(s.data, s.method) if way == BEST else (s.method,)].append(s)
    if way == BEST:
        chosen = [best_without_own_seed(tried) for tried in groups.values()]
    else:
        chosen = [s for tried in groups.values() for s in one_setting(tried)]
    return {(s.data, s.method): s for s in chosen}


def best_without_own_seed(tried: Sequence[Series]) -> Series:
    """Of one method's settings on one dataset: for every seed the setting that is best on the other seeds.

    It goes by the setting that is best on all of them.
    """
    overall = max(tried, key=chosen_by)
    if len(tried) == 1:
        return overall
    by_seed: dict[int, list[tuple[float, SeedResult]]] = defaultdict(list)
    for s in tried:
        for trial in s.trials:
            others = [mean for seed, mean in s.by_seed.items() if seed != trial.seed]
            by_seed[trial.seed].append((_mean_or_worst(others or [s.by_seed[trial.seed]]), trial))
    picked = [max(by_seed[seed], key=lambda pair: pair[0])[1] for seed in sorted(by_seed)]
    return replace(overall, trials=picked, fixed=False)


def one_setting(series: Sequence[Series]) -> list[Series]:
    """Of a method's settings that were tried on the most datasets, the one with the highest mean over them.

    What its preset has for each task counts as one. A setting that was fixed beforehand needs no choice.
    """
    beforehand = [s for s in series if s.fixed]
    if beforehand:
        return beforehand
    settings: dict[str, list[Series]] = defaultdict(list)
    for s in series:
        settings[json.dumps(s.setting)].append(s)
        if _is_preset(s):
            settings[PRESET].append(s)
    most = max(map(len, settings.values()))
    widest = [tried for tried in settings.values() if len(tried) == most]
    return max(widest, key=lambda tried: float(np.mean([chosen_by(s) for s in tried])))


def chosen_by(s: Series) -> float:
    """What settings are chosen by: the last evaluation during training. One that diverged is the last to be taken."""
    return _mean_or_worst(s.by_seed.values())


def _mean_or_worst(values: Iterable[float]) -> float:
    mean = float(np.mean(list(values)))
    return mean if np.isfinite(mean) else float("-inf")


def _is_preset(s: Series) -> bool:
    """Whether a bench left its setting to the preset, which may have another for every task."""
    return isinstance(s.record, CellRecord) and not any(name in s.record.settings for name in s.setting)
