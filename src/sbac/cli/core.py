"""What the commands share: the parser with this project's manners."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from sbac.errors import UserError

HELP = frozenset({"-h", "--help"})


class Parser(argparse.ArgumentParser):
    """argparse with this project's manners: one `error:` line, exit code 2, no abbreviations."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The words this parser knows, and the options it does not know with all their values."""
        known: list[str] = []
        others: list[str] = []
        target = known
        for word in words:
            if word in HELP:
                known.append(word)
                continue
            if word.startswith("--") and word != "--":
                target = known if word.split("=")[0] in self._option_string_actions else others
            target.append(word)
        return known, others

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


class Commands(Protocol):
    """What a command's file is handed: `add_parser` makes the command's own parser."""

    def add_parser(self, name: str, /, *, help: str, description: str = ..., epilog: str) -> Parser: ...
