"""The figures of a table of scores, as SVG files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sbac.lab.naming import collect, short_name
from sbac.lab.paper import ABLATIONS
from sbac.lab.representing import ONE
from sbac.lab.tables import ScoreTable, score_tables
from sbac.report.charts import curve_line
from sbac.report.drawing import colour_of, draw_lines, new_figure, numbers, save_svg, svg_text
from sbac.results.measured import MeasuredRun
from sbac.results.stability import DEFINITION

GROUPS_IN_A_ROW = 7
"""Of bars, in a chart of stability."""
Captioned = tuple[str, str]
"""The text of an SVG file, and what it shows."""


def write_figures(
    records: Sequence[MeasuredRun], folder: Path, developed_on: Sequence[MeasuredRun] = ()
) -> list[tuple[str, str]]:
    """Stability and ablations, for each length of training.

    What it returns are the files' names and captions.
    """
    written: list[tuple[str, str]] = []
    for i, table in enumerate(t for t in score_tables(collect(records, developed_on)) if t.way == ONE):
        for name, captioned in (("stability", stability_figure(table)), ("ablations", ablations_figure(table))):
            if captioned is not None:
                svg, caption = captioned
                file = f"{name}-{i + 1}.svg"
                save_svg(svg, folder / file)
                written.append((file, f"{caption} ({table.title})"))
    return written


def stability_figure(table: ScoreTable) -> Captioned:
    """The paper's two bar charts, the means first, in rows that fit the width of a page."""
    methods = table.stability_methods
    groups = [(f"mean of {len(block.datasets)}", table.stability_means(block)) for block in table.blocks]
    for data in table.datasets:
        groups.append((short_name(data), {m: s.stability() for m, s in table.stability_row(data).items()}))
    across = min(len(groups), GROUPS_IN_A_ROW)
    rows = [groups[start : start + across] for start in range(0, len(groups), across)]
    figure, axes = new_figure(2 * len(rows), 1, 2.0 + max(0.9, 0.06 * len(methods)) * across, 2.0)
    width = 0.8 / len(methods)
    for i, ax in enumerate(axes):
        which, at = divmod(i, len(rows))
        for k, method in enumerate(methods):
            heights = numbers(percents.get(method, (None, None))[which] for _, percents in rows[at])
            places = np.arange(len(heights)) + (k - (len(methods) - 1) / 2) * width
            ax.bar(places, heights, width, color=colour_of(method, table.methods), label=method)
        ax.axhline(0, color="0.3", linewidth=0.8)
        ax.set_xticks(range(len(rows[at])), [name for name, _ in rows[at]], fontsize="small")
        ax.set_xlim(-0.5, across - 0.5)
        ax.set_ylabel("percent")
        if at == 0:
            ax.set_title(("worst episode", "worst of the last evaluations")[which], fontsize="medium", loc="left")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", frameon=False, fontsize="small", ncols=6)
    return svg_text(figure), DEFINITION


def ablations_figure(table: ScoreTable) -> Captioned | None:
    methods = [method for method in table.methods if method.split("@")[0].split(" ")[0] in ABLATIONS]
    if len(methods) < 2:
        return None
    figure, axes = new_figure(len(table.datasets), 3, 3.2, 2.4)
    for ax, data in zip(axes, table.datasets, strict=True):
        row = table.row(data)
        draw_lines(ax, [curve_line(m, row[m], colour_of(m, table.methods)) for m in methods if m in row])
        ax.set_title(data, fontsize="small", loc="left")
        ax.tick_params(labelsize="small")
    named = {line.get_label(): line for ax in axes for line in ax.get_lines()}  # not every task has all of them
    shown = [m for m in methods if m in named]
    figure.legend([named[m] for m in shown], shown, loc="outside upper left", frameon=False, fontsize="small", ncols=4)
    axes[0].set_ylabel("score")
    axes[0].set_xlabel("gradient steps")
    caption = "SBAC and its ablations: mean over seeds, the shaded area one standard deviation between seeds"
    return svg_text(figure), caption
