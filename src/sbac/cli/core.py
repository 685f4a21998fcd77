"""What the commands share: the parser with this project's manners, its help, and the list of commands."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol

from sbac.errors import UserError

HELP = frozenset({"-h", "--help"})
WIDTH = 100
"""The widest line of help."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help that fits a screen: a short usage, an option in a line, no blank line between groups of options."""

    def __init__(self, prog: str) -> None:
        import shutil

        width = min(WIDTH, shutil.get_terminal_size().columns)
        super().__init__(prog, max_help_position=28, width=width)

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None = None
    ) -> None:
        actions = list(actions)
        if usage is None:
            positional = [self._format_args(a, str(a.dest).upper()) for a in actions if not a.option_strings]
            optional = [a for a in actions if a.option_strings and a.help != argparse.SUPPRESS]
            usage = " ".join(["%(prog)s", *positional, *(["[OPTION ...]"] if optional else [])])
        super().add_usage(usage, actions, groups, prefix)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """`N ...` where argparse has `N [N ...]`."""
        if action.nargs in ("+", argparse.PARSER):
            return f"{action.metavar or default_metavar} ..."
        return super()._format_args(action, default_metavar)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Paragraphs are filled; lines that begin with a blank stay as they are."""
        import textwrap

        lines = [line if line[:1] in ("", " ") else textwrap.fill(line, width) for line in text.splitlines()]
        return "\n".join(lines)

    def format_help(self) -> str:
        lines = super().format_help().splitlines()
        kept = [
            line
            for i, line in enumerate(lines)
            if line or not (lines[i - 1].startswith("  ") and i + 1 < len(lines) and lines[i + 1].endswith(":"))
        ]
        return "\n".join(kept) + "\n"


NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """argparse with this project's manners: one `error:` line, exit code 2, no abbreviations, help in groups."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(**options, allow_abbrev=False, add_help=False)
        self.below: dict[str, Parser] = {}
        """The parsers of the commands below it, by name."""
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        self._negative_number_matcher = NEGATIVE  # argparse takes -1e6 for an option

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The words this parser knows, and the options it does not know with all their values."""
        declared: list[str] = []
        others: list[str] = []
        target = declared
        for word in words:
            if word in HELP:
                declared.append(word)
                continue
            if word.startswith("--") and word != "--":
                target = declared if word.split("=")[0] in self._option_string_actions else others
            target.append(word)
        return declared, others

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


class _AddsParsers(Protocol):
    """What `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, /, *, description: str, epilog: str) -> Parser: ...


class Commands:
    """The commands below a parser, in groups. Each command's file adds its own."""

    def __init__(self, parser: Parser, kind: str) -> None:
        """`kind` is the placeholder that stands for one of them."""
        self.parser, self._groups = parser, dict[str, dict[str, str]]()
        self._below: _AddsParsers = parser.add_subparsers(
            dest=kind.lower(),
            required=True,
            metavar=kind,
            help=argparse.SUPPRESS,
            parser_class=Parser,
        )
        self.group("")

    def group(self, title: str) -> None:
        """The commands that follow stand under this title."""
        self._listed = self._groups.setdefault(title, {})

    def add_parser(self, name: str, /, *, help: str, description: str | None = None, epilog: str) -> Parser:
        """A command's own parser. `help` is its line in the list."""
        self._listed[name] = help
        parser = self._below.add_parser(name, description=description or f"{help}.", epilog=epilog)
        self.parser.below[name] = parser
        return parser

    def describe(self, text: str) -> None:
        """Makes the list of commands a part of the parser's help, below `text`."""
        lines = [text]
        for title, listed in self._groups.items():
            if listed:
                lines += ["", *([f"{title}:"] if title else [])]
                lines += [f"  {name:<11} {line}" for name, line in listed.items()]
        self.parser.description = "\n".join(lines)
