"""How numbers and tables are written: one format for the command line, the documentation and the page."""

import math
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

# --- Numbers ------------------------------------------------------------------------------------------------------


def number(value: float, deviation: float | None = None, digits: int = 1) -> str:
    """A measured value, with its deviation where there is one."""
    text = f"{value:z.{digits}f}"  # no -0.0
    return text if deviation is None else f"{text} ± {deviation:.{digits}f}"


def number_or_blank(value: float | None) -> str:
    return "" if value is None else number(value)


def signed(value: float, half_width: float | None = None) -> str:
    """A difference, with half the width of its interval where there is one."""
    return f"{value:+.1f}" if half_width is None else f"{value:+.1f} ± {half_width:.1f}"


def within(value: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """An estimate with its interval, where it has one."""
    bounds = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{bounds}"


def percent(value: float | None) -> str:
    """Without decimals, for numbers that are percentages already."""
    return "none" if value is None else f"{value:.0f}"


def significant(values: ArrayLike, count: int) -> list[float | None]:
    """Numbers rounded to some significant digits, which keeps files small; None for what is not finite."""
    numbers: list[float] = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.{count}g}") if math.isfinite(value) else None for value in numbers]


def counted(count: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted_policies(count: int) -> str:
    """`1 policy`, `2 policies`."""
    return "1 policy" if count == 1 else f"{count} policies"


# --- Settings -----------------------------------------------------------------------------------------------------


def setting_text(value: object) -> str:
    """The value of a setting, as tables and charts show it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_label(value: object) -> str:
    """The value of a setting as a part of a file's name: no digit is lost, and lists have no brackets."""
    if isinstance(value, list | tuple):
        return "x".join(map(str, cast("Sequence[object]", value)))
    if isinstance(value, float) and float(f"{value:g}") != value:
        return repr(value)
    return setting_text(value)


def steps_text(steps: int) -> str:
    """A number of steps in short: 200k, 1.5M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and steps % (size // 10) == 0:
            return f"{steps / size:g}{letter}"
    return str(steps)


def phases_text(steps: Iterable[int]) -> str:
    """The steps of every phase, in full: 100,000 + 200,000."""
    return " + ".join(f"{count:,}" for count in steps)


# --- Tables -------------------------------------------------------------------------------------------------------


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, rule: bool = True, numbers: bool = False) -> str:
    """Aligned columns under their names. `rule`: a line below the names; `numbers`: columns after the first one are
    aligned at their right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    texts = [
        "  ".join(
            text.rjust(width) if numbers and i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], *(["-" * len(texts[0])] if rule else []), *texts[1:]])


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, numbers at the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(markdown_text(text) for text in line) + " |" for line in lines)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, within a table too."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
