"""Pictures by matplotlib, drawn without a screen. Its types are known in part only: they stop here."""

import io
import json
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.figure
import numpy as np
from markupsafe import Markup
from matplotlib.ticker import EngFormatter, MaxNLocator

from sbac.files import write_atomic

Figure = Any
Axes = Any
COLOURS = (
    *("#0b6bcb", "#d9480f", "#2b8a3e", "#862e9c", "#5f3dc4", "#c2255c", "#087f5b", "#495057"),
    *("#74c0fc", "#ffa94d", "#8ce99a", "#e599f7", "#b197fc", "#faa2c1", "#63e6be", "#ced4da"),
)
GREY = "#868e96"
LARGEST = 1e100
"""Axes have no ticks for larger numbers: a training that diverged has them."""
Points = tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A line of a chart, with a band where it has one. `stairs`: the value holds between x and the next x."""

    name: str
    colour: str
    x: Points
    y: Points
    low: Points = ()
    high: Points = ()
    stairs: bool = False
    dashed: bool = False
    tip: str = ""
    """What is said of it beside its name."""


def colour_of(name: str, names: Sequence[str]) -> str:
    """Of one of several names; grey for another one."""
    return COLOURS[names.index(name) % len(COLOURS)] if name in names else GREY


def numbers(values: Iterable[float | None]) -> Points:
    """What can be drawn: nan for what is no number, or too large."""
    return tuple(v if v is not None and abs(v) < LARGEST else math.nan for v in map(_as_float, values))


def _as_float(value: float | None) -> float | None:
    return None if value is None else float(value)


def new_figure(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes, in rows of at most `columns`, each of a width and height in inches."""
    across = min(columns, count)
    down = -(-count // across)
    figure: Figure = matplotlib.figure.Figure(figsize=(width * across, height * down), layout="constrained")
    axes: list[Axes] = list(figure.subplots(down, across, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def draw_lines(ax: Axes, lines: Iterable[Line], rules: Iterable[tuple[str, float]] = ()) -> None:
    """Lines with their bands, and dashed horizontal rules with their names."""
    for line in lines:
        x, y = np.array(line.x), np.array(line.y)
        if not np.isfinite(y).any():
            continue
        if line.stairs:
            x, y = np.repeat(x, 2)[1:-1], np.repeat(y, 2)
        dot = [0] if len(y) == 1 else []
        style = "--" if line.dashed else "-"
        (drawn,) = ax.plot(x, y, style, color=line.colour, marker="o", markevery=dot, markersize=3, label=line.name)
        name_series(drawn, line.name, line.tip)
        if line.low:
            ax.fill_between(x, line.low, line.high, color=line.colour, alpha=0.15, linewidth=0)
    for name, value in rules:
        if abs(value) < LARGEST:
            ax.axhline(value, color="0.4", linestyle="--", linewidth=1)
            ax.annotate(name, (0.01, value), xycoords=("axes fraction", "data"), va="bottom", fontsize="small")


@lru_cache(maxsize=256)
def line_chart(lines: tuple[Line, ...], rules: tuple[tuple[str, float], ...], x_label: str) -> Markup:
    """A small chart as an SVG element; its lines are told apart by the page's legend."""
    figure, (ax,) = new_figure(1, 1, 4.0, 2.3)
    ax.tick_params(labelsize="small")
    draw_lines(ax, lines, rules)
    if max(max(line.x) for line in lines) >= 10_000:  # 50k, 1M: whole numbers would run into each other
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(x_label, fontsize="small", loc="right")
    return svg_element(svg_text(figure))


# --- Files and elements -------------------------------------------------------------------------------------------


def name_series(artist: Any, name: str, tip: str) -> None:
    """Marks what belongs to a method, for a page that hides it and says what it is."""
    artist.set_gid("series-" + json.dumps([name, tip]).encode().hex())


def svg_text(figure: Figure) -> str:
    """The same picture is the same text: no date, no random names."""
    stream = io.StringIO()
    settings: Any = matplotlib
    with settings.rc_context({"svg.hashsalt": "sbac", "svg.fonttype": "none", "text.parse_math": False}):
        _draw(figure, stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def svg_element(text: str) -> Markup:
    """An SVG element for a page: in the page's own text colour, without names that two pictures would share."""
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r" xmlns(:\w+)?=\"[^\"]*\"", "", text)
    text = re.sub(r"<g id=\"series-([0-9a-f]+)\"", _series_group, text)
    text = re.sub(r"<g id=\"[^\"]*\"", "<g", text)
    return Markup(re.sub(r"#000000|\bblack\b", "currentColor", text))


def _series_group(match: re.Match[str]) -> str:
    name, tip = json.loads(bytes.fromhex(match[1]))
    return Markup('<g class="series" data-method="{}" data-tip="{}"').format(name, f"{name} {tip}".strip())


def save_svg(text: str, path: Path) -> None:
    """A picture as a file of its own."""
    write_atomic(path, re.sub(r" id=\"series-[0-9a-f]+\"", "", text).encode())


def _draw(figure: Figure, stream: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name in letters that the font lacks, or without room for it
        figure.savefig(stream, **options)


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that a notebook shows."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png


def png_bytes(figure: Figure) -> bytes:
    stream = io.BytesIO()
    _draw(figure, stream, format="png", dpi=150)
    return stream.getvalue()
