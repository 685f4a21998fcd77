"""What the tables and the page show of some series: scores by task and method, and what follows from them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sbac.environments.opening import environment_of
from sbac.environments.tasks import find_task
from sbac.lab.choosing import Difference, differences, mean_tries, tries_of
from sbac.lab.naming import data_order, method_order
from sbac.lab.paper import paper_score
from sbac.lab.representing import BEST, ONE, PRESET, WAYS, represent
from sbac.results.series import Series
from sbac.results.statistics import Floats, Interval, interval, mean_of_tasks
from sbac.text import counted


class Block(NamedTuple):
    """A part of the table that means are taken over: all these methods have all these datasets, of one suite."""

    suite: str
    datasets: list[str]
    methods: list[str]

    @property
    def size(self) -> int:
        return len(self.datasets) * len(self.methods)

    @property
    def name(self) -> str:
        return counted(len(self.datasets), f"{self.suite} task")


@dataclass(frozen=True)
class ScoreTable:
    """Datasets by methods, all trained equally long, each method represented in the same way.

    `online` holds methods that learned in the environments themselves: only stability is compared with them.
    """

    length: str
    way: str
    chosen: Mapping[tuple[str, str], Series]
    tried: Mapping[tuple[str, str], int]
    """How many settings there were to choose from."""
    online: Sequence[Series] = ()

    @property
    def title(self) -> str:
        return f"{self.length}, {WAYS[self.way]}"

    @cached_property
    def methods(self) -> list[str]:
        return sorted({method for _, method in self.chosen}, key=method_order)

    @cached_property
    def datasets(self) -> list[str]:
        return sorted({data for data, _ in self.chosen}, key=data_order)

    def row(self, data: str) -> dict[str, Series]:
        return {method: self.chosen[data, method] for method in self.methods if (data, method) in self.chosen}

    def data_score(self, data: str) -> float | None:
        """Of the episodes in the data, by the policies that logged them: what a method is to improve on."""
        return next((s.data_mean for s in self.row(data).values() if s.data_mean is not None), None)

    def settings(self, method: str) -> dict[str, list[str]]:
        """The settings that stand for a method, each with its datasets."""
        found: dict[str, list[str]] = {}
        for data in self.datasets:
            if (data, method) in self.chosen:
                found.setdefault(self.chosen[data, method].setting_name or PRESET, []).append(data)
        return found

    def choice(self, method: str) -> str:
        """How many settings a method was tried with, in words; nothing if it was one."""
        counts = [self.tried[data, method] for data in self.datasets if (data, method) in self.tried]
        low, high = min(counts), max(counts)
        return "" if high == 1 else f"of {high}" if low == high else f"of {low} to {high}"

    @property
    def fixed_note(self) -> str:
        """Whose setting was fixed beforehand, in a sentence; nothing if nobody's was."""
        free = {method for (_, method), s in self.chosen.items() if not s.fixed}
        found = [method for method in self.methods if method not in free]
        return f"Fixed beforehand, on other trainings: the setting of {', '.join(found)}. " if found else ""

    def stability_row(self, data: str) -> dict[str, Series]:
        """The row, and what learned online in the same environment."""
        row = self.row(data)
        where, _ = environment_of(next(iter(row.values())).record.environment or "")
        return row | {f"{s.method} (online)": s for s in self.online if s.data == where}

    @property
    def stability_methods(self) -> list[str]:
        return list(dict.fromkeys([*self.methods, *(m for data in self.datasets for m in self.stability_row(data))]))

    @property
    def diverged_note(self) -> str:
        """Which runs ended without numbers, in a sentence; nothing if none did."""
        found = [
            f"{s.method} on {s.data} ({s.diverged} of {len(s.trials)} seeds)"
            for _, s in sorted(self.chosen.items(), key=lambda item: (data_order(item[0][0]), method_order(item[0][1])))
            if s.diverged
        ]
        how = "Where the task has reference returns they count as random policies."
        return f"Diverged: {', '.join(found)}. {how}" if found else ""

    @cached_property
    def _suites(self) -> dict[str, dict[str, frozenset[str]]]:
        """For each suite the methods that have datasets of it, and which; returns without references have no place."""
        found: dict[str, dict[str, frozenset[str]]] = {}
        for data in self.datasets:
            for method, series in self.row(data).items():
                if series.task is not None:
                    covered = found.setdefault(find_task(series.task).suite, {})
                    covered[method] = covered.get(method, frozenset()) | {data}
        return found

    @cached_property
    def blocks(self) -> list[Block]:
        """Of each suite the parts of the table without gaps: all methods, the largest, and the most datasets.

        A lone dataset beside such parts has none of its own: its row says it all.
        """
        found = [block for suite in self._suites for block in self._blocks(suite)]
        return [block for block in found if len(block.datasets) > 1] or found

    def _blocks(self, suite: str) -> list[Block]:
        coverage = self._suites[suite]

        def block(shared: frozenset[str]) -> Block:
            methods = [method for method in self.methods if coverage.get(method, frozenset()) >= shared]
            return Block(suite, [data for data in self.datasets if data in shared], methods)

        everywhere = frozenset(data for data in self.datasets if all(data in covered for covered in coverage.values()))
        candidates = [block(covered) for covered in dict.fromkeys(coverage.values())]
        largest = max(candidates, key=lambda b: (b.size, len(b.methods)))
        compared = [b for b in candidates if len(b.methods) > 1]
        widest = max(compared, key=lambda b: (len(b.datasets), len(b.methods)), default=largest)
        by_datasets = {tuple(b.datasets): b for b in (block(everywhere), largest, widest) if b.datasets}
        return sorted(by_datasets.values(), key=lambda b: len(b.datasets))

    def scores(self, block: Block, method: str) -> list[Floats]:
        """The seeds' scores on each of the block's datasets."""
        return [self.chosen[data, method].scores for data in block.datasets]

    def mean(self, block: Block, method: str) -> float:
        return float(mean_of_tasks(self.scores(block, method)))

    def overall(self, block: Block) -> dict[str, tuple[Interval, Interval]]:
        """For each method of the block mean and interquartile mean over its datasets, with their intervals."""
        every = {method: self.scores(block, method) for method in block.methods}
        return {method: (interval(scores, mean_of_tasks), interval(scores)) for method, scores in every.items()}

    def data_mean(self, block: Block) -> float | None:
        return _mean([self.data_score(data) for data in block.datasets])

    def deviation(self, block: Block, method: str) -> float | None:
        """The mean over the block's datasets of the deviation between seeds, as the paper averages it."""
        return _mean([self.chosen[data, method].deviation for data in block.datasets])

    def stability_means(self, block: Block) -> dict[str, tuple[float | None, float | None]]:
        """Of both measures the mean over the block's datasets, if all of them have a number.

        Methods that learned online are among them where they did in every dataset's environment.
        """
        rows = [self.stability_row(data) for data in block.datasets]
        means: dict[str, tuple[float | None, float | None]] = {}
        for method in self.stability_methods:
            if all(method in row for row in rows):
                episodes, evaluations = zip(*(row[method].stability() for row in rows), strict=True)
                means[method] = _mean(episodes), _mean(evaluations)
        return means

    def paper_mean(self, block: Block, method: str) -> float | None:
        """The mean of what the paper printed for the block's datasets, if it did for all of them."""
        found = [paper_score(self.chosen[data, method]) for data in block.datasets]
        return _mean([None if score is None else score[0] for score in found])

    def differences(self, block: Block, method: str) -> dict[str, Difference]:
        """The method's mean over a block less that of each other one."""
        rivals = {other: self.scores(block, other) for other in block.methods if other != method}
        return differences(self.scores(block, method), rivals)


def _mean(values: Sequence[float | None]) -> float | None:
    """Of numbers that are all known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def expected_scores(series: Sequence[Series], table: ScoreTable, block: Block) -> dict[str, Floats]:
    """For each method of a block the score that is to be expected of 1, 2, ... policies tried in the environment."""
    found: dict[str, Floats] = {}
    for method in block.methods:
        tried = [
            [s for s in series if (s.data, s.method, s.length) == (data, method, table.length) and s.is_final]
            for data in block.datasets
        ]
        found[method] = mean_tries([tries_of(settings) for settings in tried])
    return found


def score_tables(series: Sequence[Series]) -> list[ScoreTable]:
    """A table for each length of training and each way of choosing settings."""
    online = [s for s in series if s.record.is_online and s.evaluated]
    offline = [s for s in series if not s.record.is_online]
    tables: list[ScoreTable] = []
    for length in dict.fromkeys(s.length for s in offline):
        trained = [s for s in offline if s.length == length]
        ways = [way for way in WAYS if way == ONE or _has_choice(trained)]
        tried = Counter((s.data, s.method) for s in trained if s.is_final)
        tables += [ScoreTable(length, way, represent(trained, way), tried, online) for way in ways]
    return [table for table in tables if table.chosen]


def _has_choice(series: Sequence[Series]) -> bool:
    """Whether settings can be chosen: a method has several on a dataset, or none that all of its datasets have."""
    places = {(s.data, s.method) for s in series}
    return len(places) < len(series) or len(represent(series, ONE)) < len(represent(series, BEST))
