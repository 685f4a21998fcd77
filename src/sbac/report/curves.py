"""Learning curves: the mean over seeds of every setting, with the spread between seeds."""

from pathlib import Path

from sbac.errors import UserError, path_of
from sbac.files import write_atomic
from sbac.report.charts import curve_line, curve_rules
from sbac.report.drawing import COLOURS, Picture, draw_lines, new_figure, png_bytes
from sbac.results.describe import describe
from sbac.results.series import series_of
from sbac.runs import Run


def plot(run: Run, path: str | Path | None = None) -> Picture:
    """The learning curves of a run, with the clone and the log, as a picture that a notebook shows; `path` saves it."""
    series = [s for s in series_of(describe(run)) if s.evaluated]
    if not series:
        raise UserError("a run that was not evaluated has no learning curve; train it with an environment")
    figure, (ax,) = new_figure(1, 1, 7.0, 4.0)
    lines = [curve_line(s.label, s, COLOURS[i % len(COLOURS)]) for i, s in enumerate(series)]
    draw_lines(ax, lines, curve_rules(series))
    ax.set_xlabel("gradient steps")
    ax.set_ylabel("normalised score" if series[0].unit == "score" else "return")
    ax.legend(frameon=False, fontsize="small")
    picture = Picture(png_bytes(figure))
    if path is not None:
        write_atomic(path_of("path", path), picture.png)
    return picture
