"""Callbacks: objects that a training calls when it has written something."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sbac.errors import UserError
from sbac.records import Json
from sbac.runs import PLACE, Run
from sbac.text import setting_label

Row = Mapping[str, Json]
"""A row of metrics.jsonl or evaluations.jsonl, as the file has it."""


class Callback:
    """Inherit from it and override what you need.

    The calls come from the process that trains, between stretches of steps, so a slow callback slows the training.
    An exception in a callback ends the training, which can be resumed. A resumed training repeats the rows since its
    last checkpoint, and no earlier ones.
    """

    def on_metrics(self, rows: Sequence[Row]) -> None:
        """Rows were added to metrics.jsonl: one for each run that trained, all of one step."""

    def on_evaluation(self, rows: Sequence[Row]) -> None:
        """Rows were added to evaluations.jsonl: one for each policy of a snapshot, which may be some steps old."""

    def on_end(self, run: Run) -> None:
        """The training is finished."""


@dataclass(frozen=True)
class Callbacks(Callback):
    """Several callbacks as one. They are called in order."""

    entries: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            for name in ("on_metrics", "on_evaluation", "on_end"):
                if not callable(getattr(entry, name, None)):
                    raise UserError(
                        f"callbacks: {type(entry).__name__} has no method {name}; inherit from sbac.Callback"
                    )

    def on_metrics(self, rows: Sequence[Row]) -> None:
        for entry in self.entries:
            entry.on_metrics(rows)

    def on_evaluation(self, rows: Sequence[Row]) -> None:
        for entry in self.entries:
            entry.on_evaluation(rows)

    def on_end(self, run: Run) -> None:
        for entry in self.entries:
            entry.on_end(run)


NO_CALLBACKS = Callbacks()


def settings(row: Row) -> dict[str, Json]:
    """The grid's fields of a row that its phase depends on."""
    before = takewhile(lambda name: name != "group", row)
    return {name: row[name] for name in before if name not in PLACE and row[name] is not None}


def row_label(row: Row) -> str:
    """Which run the row is of: its policy's label, without the settings that the phase does not depend on."""
    parts = [f"{name}={setting_label(value)}" for name, value in settings(row).items()]
    return "_".join([*parts, f"seed={row['seed']}"])


def curves(row: Row) -> Iterator[tuple[str, float]]:
    """The row's numbers, each with the name `phase/number`: metrics, or the means of returns and scores."""
    if "returns" in row:
        columns = {"return": _mean(row["returns"]), "score": _mean(row.get("scores"))}
    else:
        columns = {name: value for name, value in row.items() if name not in PLACE and name not in settings(row)}
    for name, value in columns.items():
        if isinstance(value, int | float):
            yield f"{row['phase']}/{name}", value


def row_step(row: Row) -> int:
    step = row["step"]
    assert isinstance(step, int)
    return step


def _mean(values: Json) -> float | None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return None
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) / len(numbers) if numbers else None
