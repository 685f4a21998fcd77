"""Two runs side by side: where their configurations differ, and how their policies did."""

from collections.abc import Mapping
from typing import Any

from sbac.config import RETIRED
from sbac.results.cells import describe
from sbac.results.series import Series, collect
from sbac.results.statistics import probability_of_improvement
from sbac.results.tables import number
from sbac.runs import Run

IGNORED = {"labels", "runs", "format"}


def compare(first: Run, second: Run, names: tuple[str, str]) -> str:
    """The comparison as text."""
    parts = [_table(["", *names], differences(first, second)) or "the configurations are the same"]
    scores = _scores(first, second)
    parts.append(_table(["last evaluation", *names, "P(first better)"], scores) or "neither run was evaluated")
    return "\n\n".join(parts)


def differences(first: Run, second: Run) -> list[list[str]]:
    """A row for each field in which the runs differ."""
    left, right = _fields(first), _fields(second)
    names = dict.fromkeys([*left, *right])
    return [[name, left.get(name, "-"), right.get(name, "-")] for name in names if left.get(name) != right.get(name)]


def _fields(run: Run) -> dict[str, str]:
    """Everything that defines a run, flat: a field of the algorithm with all the values it has in the grid."""
    fields: dict[str, str] = {}

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            inner: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
            for key, entry in inner.items():
                flatten(f"{prefix}.{key}" if prefix else key, entry)
        else:
            fields[prefix] = _text(value)

    flatten("", {k: v for k, v in run.config.items() if k not in IGNORED})
    for name in dict.fromkeys(name for config in run.config["runs"] for name in config if name not in RETIRED):
        fields[name] = " ".join(dict.fromkeys(_text(config[name]) for config in run.config["runs"]))
    return fields


def _text(value: Any) -> str:
    if isinstance(value, list):
        entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return ",".join(map(_text, entries))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _scores(first: Run, second: Run) -> list[list[str]]:
    """A row for each setting; where both runs have it, how likely a seed of the first beats one of the second."""
    left, right = ({_setting(s): s for s in collect([describe(run)]) if s.evaluated} for run in (first, second))
    rows: list[list[str]] = []
    for setting in dict.fromkeys([*left, *right]):
        a, b = left.get(setting), right.get(setting)
        better = ""
        if a is not None and b is not None and a.unit == b.unit:
            better = f"{probability_of_improvement([a.scores], [b.scores]).value:.2f}"
        unit = next(s.unit for s in (a, b) if s is not None)
        rows.append([f"{setting} ({unit})".strip(), _score(a), _score(b), better])
    return rows


def _setting(s: Series) -> str:
    """Without the method, so that two methods with the same setting stand in one row."""
    return s.label.removeprefix(s.method).strip() or "all"


def _score(s: Series | None) -> str:
    return "-" if s is None else f"{number(s.mean, s.deviation)} ({len(s.trials)} seeds)"


def _table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    texts = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([texts[0], "-" * len(texts[0]), *texts[1:]])
