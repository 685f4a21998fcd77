"""A run in one picture: its learning curves or, where it never played, its actions beside those of the log."""

from collections.abc import Sequence
from pathlib import Path

from sbac.errors import path_of
from sbac.files import write_atomic
from sbac.report.charts import action_lines, curve_line, curve_rules
from sbac.report.drawing import COLOURS, Figure, Picture, draw_lines, new_figure, png_bytes
from sbac.results.describe import describe
from sbac.results.series import Series, series_of
from sbac.runs import Run
from sbac.trust.contenders import own_log


def plot(run: Run, path: str | Path | None = None) -> Picture:
    """The learning curves of a run, with the clone and the log, as a picture that a notebook shows; `path` saves it.

    Of a run that was not evaluated in an environment: how often its policies take each action in states of the log,
    beside what the log did there.
    """
    series = [s for s in series_of(describe(run)) if s.evaluated]
    picture = Picture(png_bytes(_curves(series) if series else _actions(run)))
    if path is not None:
        write_atomic(path_of("path", path), picture.png)
    return picture


def _curves(series: Sequence[Series]) -> Figure:
    figure, (ax,) = new_figure(1, 1, 7.0, 4.0)
    lines = [curve_line(s.label, s, COLOURS[i % len(COLOURS)]) for i, s in enumerate(series)]
    draw_lines(ax, lines, curve_rules(series))
    ax.set_xlabel("gradient steps")
    ax.set_ylabel("normalised score" if series[0].unit == "score" else "return")
    ax.legend(frameon=False, fontsize="small")
    return figure


def _actions(run: Run) -> Figure:
    shown = {s.label: s for s in series_of(describe(run, own_log(run, None)))}
    by_name = action_lines(shown, list(shown))
    figure, axes = new_figure(len(by_name), 3, 3.5, 2.5)
    for ax, (name, lines) in zip(axes, by_name.items(), strict=True):
        draw_lines(ax, lines)
        ax.set_xlabel(name)
        ax.yaxis.set_visible(False)
    axes[0].legend(frameon=False, fontsize="small")
    return figure
