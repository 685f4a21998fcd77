"""What is judged, and on which log: runs, policies and functions as contenders, and what a run says of itself."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sbac.algorithms import find
from sbac.config import fields_of
from sbac.data import Dataset, load
from sbac.data.loading import LogOptions
from sbac.data.naming import ColumnMap
from sbac.data.rules import names_in
from sbac.errors import UserError
from sbac.evaluation.rollout import Acts
from sbac.policy import Policy
from sbac.records import Setting, parse
from sbac.runs import Run, RunRecord, policy_file, policy_setting
from sbac.trust.choice import CLONE, label_of
from sbac.trust.log import JudgedLog

Judged = Run | str | Path | Acts
"""A run or its folder, a policy, or a function from observations to actions, both in the environment's units."""


class Contender(NamedTuple):
    """A policy that is judged: what it is called in the answer, its file, and the run that it comes from."""

    label: str
    policy: Acts
    file: Path | None = None
    run: Run | None = None

    @property
    def is_finite(self) -> bool:
        return not isinstance(self.policy, Policy) or self.policy.is_finite

    @property
    def hash(self) -> str | None:
        return self.policy.hash if isinstance(self.policy, Policy) else None

    @property
    def seed(self) -> int:
        return int(self.policy.config.get("seed", 0)) if isinstance(self.policy, Policy) else 0

    @property
    def setting(self) -> dict[str, Setting]:
        return (
            policy_setting(self.policy, self.policy.config.get("grid", [])) if isinstance(self.policy, Policy) else {}
        )


def read_runs(judged: Judged | Sequence[Judged]) -> list[Run | Acts]:
    """The runs, policies and functions, folders as the runs that they hold."""
    several = [judged] if isinstance(judged, Run | str | Path) or callable(judged) else list(judged)
    if not several:
        raise UserError("no run: expected a run, a policy or a function, or a list of them")
    read = [Run.load(each) if isinstance(each, str | Path) else each for each in several]
    for each in read:
        if isinstance(each, Run) and not each.policies:
            raise UserError(f"{each.folder or 'the run'}: it has no policies yet; finish it with sbac train --resume")
        if not isinstance(each, Run) and not callable(each):
            raise UserError(f"{each!r}: expected a run, a policy or a function from observations to actions")
    return read


def contenders(judged: Sequence[Run | Acts]) -> list[Contender]:
    """All policies. Where several are given, a run's policies are called by its folder too."""
    named: list[Contender] = []
    folders = [each.folder.name for each in judged if isinstance(each, Run) and each.folder is not None]
    for each in judged:
        if isinstance(each, Run):
            folder = each.folder
            name = each.record.algorithm if folder is None else folder.name
            name = str(folder) if folders.count(name) > 1 else name
            for policy in each.policies:
                label = label_of(policy)
                file = None if folder is None else policy_file(folder, label)
                named.append(Contender(label if len(judged) == 1 else f"{name}/{label}", policy, file, each))
        else:
            name = each.config.get("label") if isinstance(each, Policy) else getattr(each, "__name__", None)
            named.append(Contender(str(name or "policy"), each))
    labels = distinct([CLONE, *(each.label for each in named)])[1:]
    return [each._replace(label=label) for each, label in zip(named, labels, strict=True)]


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with a number where one stands before."""
    numbered: list[str] = []
    for label in labels:
        tries = (label if count == 1 else f"{label} ({count})" for count in itertools.count(1))
        numbered.append(next(each for each in tries if each not in numbered))
    return numbered


# --- What a run says --------------------------------------------------------------------------------------------------


def preset_setting(record: RunRecord) -> dict[str, Setting]:
    """The values that the run's preset gives to the method's options."""
    method = find(record.algorithm)
    defaults = {name: field.default for name, field in fields_of(method.config).items()}
    return {**defaults, **method.presets.get(record.preset, {})}


def discount_of(record: RunRecord) -> float:
    """gamma of the run; the largest, where it is a grid's field."""
    given = [run.get("discount") for run in record.runs]
    return max((float(value) for value in given if isinstance(value, int | float)), default=0.99)


def default_effort(record: RunRecord) -> str:
    return "quick" if record.preset == "quick" else "full"


def log_of(runs: Sequence[Run], data: Dataset | str | None, watch: Sequence[str] = ()) -> Dataset:
    """The log that the policies are judged on: the one that is named, or the one that all runs learned from.

    What `watch` names of its file's columns comes with it.
    """
    extras = {"extras": [name for text in watch for name in names_in(text)]} if watch else None
    if data is not None:
        return load(data, columns=extras)
    if not runs:
        raise UserError("policies that come from no run have no log; name one (data=)")
    log = own_log(runs[0], extras)
    for run in runs[1:]:
        if run.record.data is None or run.record.data.hash != log.hash:
            raise UserError(
                f"{run.folder or 'a run'}: it did not learn from {log.name}, as {runs[0].folder or 'the first run'} "
                "did; name the log to judge all of them on with --data"
            )
    return log


def own_log(run: Run, columns: ColumnMap | None) -> Dataset:
    """The log that a run learned from, by the path that it was given; its hash tells that it is the same."""
    where, learned = run.folder or "the run", run.record.data
    if learned is None:
        raise UserError(f"{where}: it learned in an environment and has no log; name one with --data")
    said = parse(LogOptions, run.record.reading or {}, f"{where}: reading")
    said = replace(said, environment=None, max_bytes=None, columns={**(columns or {}), **(said.columns or {})})
    problem = ""
    sources: list[str] = [*(run.record.paths or []), learned.name]
    for source in dict.fromkeys(sources):
        try:
            log = load(source, **vars(said))
        except UserError as error:
            problem = problem or f"its log {source!r} is not found ({error})"
            continue
        if log.hash == learned.hash:
            return log
        problem = f"{source!r} is not the log that the run learned from, or was read with other options"
    raise UserError(f"{where}: {problem}; name it with --data")


def learned_elsewhere(runs: Sequence[Run], log: JudgedLog) -> list[str]:
    """The names of the logs that the runs learned from, as far as they are others."""
    learned = [run.record.data for run in runs if run.record.data is not None]
    return list(dict.fromkeys(data.name for data in learned if data.hash != log.hash))
