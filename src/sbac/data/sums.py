"""Rewards as a sum of columns: `-cost`, `2*yield - energy + 1`. Such a text is read by the rules below, never run."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
TERM = re.compile(rf'([+-]?)\s*(?:({NUMBER})\s*\*\s*)?(?:({NUMBER})(?=\s*(?:[+-]|$))|"([^"]+)"|([^+\-*"]+))\s*')
"""A sign, a factor, then a number or the name of a column; a name with one of + - * stands in quotation marks."""


def terms_of(text: str) -> dict[str, float]:
    """The factor of every column of a sum, and the number beside them under the name ""; empty if it is no sum."""
    terms: dict[str, float] = {}
    position, text = 0, text.strip()
    while position < len(text):
        term = TERM.match(text, position)
        if term is None or (position and not term[1]):
            return {}
        sign, factor, number, quoted, bare = term.groups()
        name = "" if number else (quoted or bare).strip()
        value = float(factor or 1) * float(number or 1) * (-1 if sign == "-" else 1)
        terms[name] = terms.get(name, 0.0) + value
        position = term.end()
    return terms


def columns_in(text: str) -> list[str]:
    """The names of the columns of a sum."""
    return [name for name in terms_of(text) if name]


def summed(values: NDArray[Any], text: str) -> NDArray[np.float64]:
    """The sum of columns that stand side by side in the order of `columns_in`."""
    terms = terms_of(text)
    factors = [factor for name, factor in terms.items() if name]
    return values.reshape(len(values), len(factors)).astype(np.float64) @ np.array(factors) + terms.get("", 0.0)


def is_sum(text: object, members: Sequence[str]) -> bool:
    """Whether a text stands for a sum of these columns, and not for one of them as it is."""
    return isinstance(text, str) and [text] != [*members] and bool(members) and columns_in(text) == [*members]
