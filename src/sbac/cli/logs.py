"""The options of every command that reads a log."""

import argparse
import csv
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sbac.errors import UserError, shown

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.data.loading import LogOptions

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class AddsOptions(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action: ...


def add_log_options(group: AddsOptions, *, env: bool = True) -> None:
    """Adds what can be said of a log; without `env` for a command that has an --env of its own."""
    group.add_argument(
        "--columns", nargs="+", metavar="FIELD=COLUMN", help="which column is which: rewards=r observations=x,y"
    )
    group.add_argument("--task", metavar="NAME", help="the task that the log belongs to")
    group.add_argument("--horizon", type=int, metavar="N", help="the time limit of a log that does not flag it")
    if env:
        group.add_argument("--env", metavar="ID", help="the log's environment; it has the bounds")
    group.add_argument("--action-low", nargs="+", type=float, metavar="X", help="least actions (default: -1)")
    group.add_argument("--action-high", nargs="+", type=float, metavar="X", help="greatest actions (default: 1)")
    group.add_argument("--max-bytes", metavar="N", help="memory it may take, as 4G (100 times its file)")
    group.add_argument(
        "--missing", choices=("refuse", "hold", "cut"), default="refuse", help="what to do about missing values"
    )
    group.add_argument("--continuous", action="store_true", help="whole numbers as actions are continuous")


def log_options(args: argparse.Namespace) -> "LogOptions":
    """What was said of the log."""
    from sbac.data.loading import LogOptions
    from sbac.data.rules import names_in

    columns = _columns(args.columns)
    if watched := [name for text in vars(args).get("watch") or () for name in names_in(text)]:
        columns = {"extras": watched} | (columns or {})
    return LogOptions(
        task=args.task,
        columns=columns,
        horizon=args.horizon,
        action_low=_bound(args.action_low),
        action_high=_bound(args.action_high),
        environment=args.env,
        max_bytes=_bytes(args.max_bytes),
        missing=args.missing,
        continuous=args.continuous,
    )


def load_log(source: str | Sequence[str], args: argparse.Namespace) -> "Dataset":
    """The log, of one file or of several, with its options. What is doubtful about it is told on stderr."""
    from sbac.data import load

    alone = source[0] if not isinstance(source, str) and len(source) == 1 else source
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = load(alone, **vars(log_options(args)))
    for warning in caught:
        print(f"warning: {shown(' '.join(str(warning.message).split()))}", file=sys.stderr)
    tell_notes(data.notes)
    return data


def tell_notes(notes: Iterable[str]) -> None:
    """Says on stderr what was done to a log when it was read."""
    for note in dict.fromkeys(notes):
        print(f"note: {shown(note)}", file=sys.stderr)


def _columns(words: list[str] | None) -> dict[str, str | list[str]] | None:
    """`field=column`, `field=column,column` and `field="a name, with a comma"` as a mapping."""
    if words is None:
        return None
    columns: dict[str, str | list[str]] = {}
    for word in words:
        field, equals, name = word.partition("=")
        if not (field and equals and name):
            raise UserError(f"--columns {word!r}: expected FIELD=COLUMN, such as rewards=r")
        if field in columns:
            raise UserError(f"--columns {word!r}: {field} is given twice; several columns are {field}=first,second")
        columns[field] = next(csv.reader([name], skipinitialspace=True)) if "," in name else name
    return columns


def _bound(values: list[float] | None) -> float | list[float] | None:
    return values[0] if values is not None and len(values) == 1 else values


def _bytes(text: str | None) -> int | None:
    """`4G` as a number of bytes."""
    if text is None:
        return None
    number, unit = text.lower().removesuffix("b").removesuffix("i"), ""
    if number and number[-1] in UNITS:
        number, unit = number[:-1], number[-1]
    try:
        size = int(float(number) * UNITS[unit])
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise UserError(f"--max-bytes {text!r}: expected a number of bytes, such as 500M or 4G")
    return size
