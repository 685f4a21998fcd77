"""Rules over columns: `height < 0.8 or abs(angle) > 1`. Such a text is read by the grammar below, never run.

A rule is one comparison, or several joined by `and`, `or` and parentheses. A comparison is of a column, or abs(column),
with a number. A name with blanks or signs stands in quotation marks or backticks.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sbac.errors import UserError, unknown

Holds = Callable[[Mapping[str, Any]], Any]
"""From columns by name, arrays of numpy or JAX, to an array of truths."""

COMPARE: Mapping[str, Callable[[Any, float], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
JOIN: Mapping[str, Callable[[Any, Any], Any]] = {"and": lambda a, b: a & b, "or": lambda a, b: a | b}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""With the number first: 0.8 > height is height < 0.8."""
TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<sign>[<>]=?|[=!]=|[()])|"""
    r"""(?P<word>[^\W\d][\w.:]*)|"(?P<quoted>[^"]+)"|'(?P<single>[^']+)'|`(?P<ticked>[^`]+)`)"""
)
NAMES = ("word", "quoted", "single", "ticked")
"""The kinds of tokens that name a column."""
LONGEST, DEEPEST = 2_000, 40
"""Letters of a rule, and parentheses inside of each other."""


@dataclass(frozen=True)
class Rule:
    text: str
    columns: tuple[str, ...]
    """The columns that it reads."""
    holds: Holds


def parse(text: str, columns: Collection[str], what: str = "rule") -> Rule:
    """The rule that a text stands for, over these columns. `what`: what an error line calls it."""
    reader = _Reader(text, columns, f"{what} {text!r:.120}")
    holds = reader.either(0)
    reader.end()
    return Rule(text, tuple(dict.fromkeys(reader.read)), holds)


def names_in(text: str) -> list[str]:
    """All that may name a column in a text: the text itself, and its words."""
    words = (token[token.lastgroup] for token in TOKEN.finditer(text[:LONGEST]) if token.lastgroup in NAMES)
    return [*dict.fromkeys((text, *words))]


class _Reader:
    """Reads a text from its left to its right, one token ahead."""

    def __init__(self, text: str, columns: Collection[str], where: str) -> None:
        self.text, self.columns, self.where = text, columns, where
        self.at, self.read = 0, list[str]()
        if len(text) > LONGEST:
            raise UserError(f"{where}: expected at most {LONGEST} letters")
        self.next()

    def next(self) -> None:
        """Goes on to the next token: its kind, and its text. At the end both are empty."""
        self.begin, token = self.at, TOKEN.match(self.text, self.at)
        if token is None:
            if self.text[self.at :].strip():
                self.refuse()
            self.kind, self.token = "", ""
            return
        self.at, self.kind = token.end(), token.lastgroup or ""
        self.token: str = token[self.kind]

    def refuse(self) -> NoReturn:
        rest = self.text[self.begin :].strip()
        place = f"cannot read {rest!r:.40}" if rest else "it ends too early"
        raise UserError(
            f"{self.where}: {place}; expected comparisons such as height < 0.8, joined by and, or, ( ), "
            "with names of several words in `backticks`"
        )

    def takes(self, *tokens: str) -> str:
        """The token, and on to the next one, if it is one of these words or signs."""
        token = self.token if self.kind in ("word", "sign") and self.token in tokens else ""
        if token:
            self.next()
        return token

    def wants(self, *tokens: str) -> str:
        return self.takes(*tokens) or self.refuse()

    def end(self) -> None:
        if self.kind:
            self.refuse()

    def either(self, depth: int) -> Holds:
        return self.joined("or", lambda: self.joined("and", lambda: self.single(depth)))

    def joined(self, word: str, part: Callable[[], Holds]) -> Holds:
        holds = part()
        while self.takes(word):
            holds = _join(JOIN[word], holds, part())
        return holds

    def single(self, depth: int) -> Holds:
        """A comparison, or a rule in parentheses."""
        if self.takes("("):
            if depth == DEEPEST:
                raise UserError(f"{self.where}: expected at most {DEEPEST} parentheses inside of each other")
            holds = self.either(depth + 1)
            self.wants(")")
            return holds
        if self.kind == "number":
            bound = self.number()
            sign = self.wants(*COMPARE)
            return _compare(*self.column(), MIRRORED.get(sign, sign), bound)
        name, magnitude = self.column()
        return _compare(name, magnitude, self.wants(*COMPARE), self.number())

    def number(self) -> float:
        number = float(self.token) if self.kind == "number" else math.nan
        if not math.isfinite(number):
            self.refuse()
        self.next()
        return number

    def column(self) -> tuple[str, bool]:
        """The name of a column, and whether its magnitude is meant."""
        kind, name = self.kind, self.token
        if kind not in NAMES:
            self.refuse()
        self.next()
        if kind == "word" and name == "abs" and self.takes("("):
            name, _ = self.column()
            self.wants(")")
            return name, True
        if name not in self.columns:
            goes_on = kind == self.kind == "word" and self.token not in JOIN
            hint = "; a name of several words stands in `backticks`" if goes_on else ""
            raise UserError(f"{self.where}: {unknown('column', name, self.columns)}{hint}")
        self.read.append(name)
        return name, False


def _compare(name: str, magnitude: bool, sign: str, bound: float) -> Holds:
    compare = COMPARE[sign]
    return lambda columns: compare(abs(columns[name]) if magnitude else columns[name], bound)


def _join(join: Callable[[Any, Any], Any], first: Holds, second: Holds) -> Holds:
    return lambda columns: join(first(columns), second(columns))
