"""The error for bad input: one line, and exit code 2 on the command line."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The message is one line that names the file or field and says what was expected."""


class InUseError(UserError):
    """A folder that another process is writing."""


def positive(what: str, value: int | None) -> None:
    """Refuses a count below 1; None, which stands for a default, passes."""
    if value is not None and value < 1:
        raise UserError(f"{what} {value}: expected at least 1")


def unknown(what: str, given: str, known: Iterable[str]) -> UserError:
    """An unknown name, with the nearest known one suggested."""
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(names)}"
    return UserError(f"unknown {what} {given!r}; {hint}")
