"""The error for bad input: one line, and exit code 2 on the command line."""

import difflib
import math
import operator
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import SupportsFloat, SupportsIndex, TypeVar

Entry = TypeVar("Entry")
LARGEST = 2**63
"""What a whole number stays below: arrays and random generators take no larger one."""


UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a terminal's cursor, turn its text around, or cannot be written as UTF-8."""


def shown(text: str) -> str:
    """Text in one line that a terminal shows as it is."""
    return UNSHOWABLE.sub(lambda match: ascii(match[0])[1:-1], text)


class UserError(ValueError):
    """Bad input. The message is one line that names the file or field and says what was expected."""


class InUseError(UserError):
    """A folder that another process is writing."""


@contextmanager
def remedy(what: str) -> Generator[None, None, None]:
    """Adds to the error of bad input in this block what to do about it."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{error}; {what}") from None


def positive(what: str, value: object) -> None:
    """Refuses what is not a whole number of at least 1; None, which stands for a default, passes."""
    if value is not None:
        _whole(what, value, 1)


def not_negative(what: str, value: object) -> None:
    """Refuses what is not a whole number of at least 0."""
    _whole(what, value, 0)


def _whole(what: str, value: object, least: int) -> None:
    try:
        number = operator.index(value) if isinstance(value, SupportsIndex) else None
    except TypeError:  # an array
        number = None
    if number is None:
        raise UserError(f"{what} {value!r}: expected a whole number of at least {least}")
    if number < least:
        raise UserError(f"{what} {value}: expected at least {least}")
    if number >= LARGEST:
        raise UserError(f"{what} {value}: expected less than 2^63")


def finite(what: str, value: object) -> float:
    """A finite number; anything else is refused."""
    if isinstance(value, SupportsFloat):
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise UserError(f"{what} {value!r}: expected a finite number")


def inside_unit(what: str, value: object) -> None:
    """Refuses what is not a number between 0 and 1, both excluded."""
    with suppress(UserError):
        if 0 < finite(what, value) < 1:
            return
    raise UserError(f"{what}: expected a number inside (0, 1), got {value!r}")


def name_of(what: str, value: object) -> str:
    """A name; what is not text is refused."""
    if not isinstance(value, str):
        raise UserError(f"{what} {value!r}: expected a name")
    return value


def check_named(what: str, value: object) -> None:
    """Refuses what is not a mapping."""
    if not isinstance(value, Mapping):
        raise UserError(f"{what}: expected names with values, got {type(value).__name__}")


def listed(what: str, values: Iterable[Entry] | None) -> list[Entry]:
    """The entries of a list; none of None. Text, which Python takes apart into letters, is refused."""
    if not isinstance(values, str):
        with suppress(TypeError):
            return [] if values is None else list(values)
    raise UserError(f"{what} {values!r}: expected a list")


def path_of(what: str, value: object) -> Path:
    """A path from text or a path; anything else is refused."""
    if not isinstance(value, str | Path):
        raise UserError(f"{what} {value!r}: expected a path")
    if UNSHOWABLE.search(str(value)):
        raise UserError(f"{what} {str(value)!r}: expected a path in UTF-8 without control characters")
    return Path(value)


def unknown(what: str, given: object, known: Iterable[str]) -> UserError:
    """An unknown name, with the nearest known one suggested."""
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1) if isinstance(given, str) else []
    hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(names)}"
    return UserError(f"unknown {what} {given!r}; {hint}")
