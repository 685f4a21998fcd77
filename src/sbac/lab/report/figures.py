"""The paper's figures from a results folder, as SVG files for the documentation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sbac.lab.cells import MeasuredRun
from sbac.lab.tables import ScoreTable, expected_scores, score_tables, short_name
from sbac.report.drawing import COLOURS, Figure, new_figure, save_svg
from sbac.results.series import ONE, Series, collect
from sbac.results.stability import DEFINITION

ABLATIONS = ("sbac", "sbac-no-w", "sbac-q-pi", "one-step")
PALE = ("#74c0fc", "#ffa94d", "#8ce99a", "#e599f7", "#b197fc", "#faa2c1", "#63e6be", "#ced4da")
"""For the methods after the first eight."""
GROUPS_IN_A_ROW = 7
"""Of bars, in a chart of stability."""
WrittenFigure = tuple[str, str]
"""A file's name and its caption."""


def write_figures(
    records: Sequence[MeasuredRun], folder: Path, developed_on: Sequence[MeasuredRun] = ()
) -> list[WrittenFigure]:
    """Scores by tries, stability, ablations and performance profiles, for each length of training."""
    written: list[WrittenFigure] = []
    series = collect(records, developed_on)
    for i, table in enumerate(t for t in score_tables(series) if t.way == ONE):
        figures = [
            ("tries", _tries(series, table)),
            ("stability", _stability(table)),
            ("ablations", _ablations(table)),
            ("profiles", _profiles(table)),
        ]
        for name, made in figures:
            if made is not None:
                figure, caption = made
                file = f"{name}-{i + 1}.svg"
                save_svg(figure, folder / file)
                written.append((file, f"{caption} ({table.title})"))
    return written


def _colour(table: ScoreTable, method: str) -> str:
    colours = COLOURS + PALE
    return colours[table.methods.index(method) % len(colours)] if method in table.methods else "0.6"


def _tries(series: Sequence[Series], table: ScoreTable) -> tuple[Figure, str] | None:
    """What is to be expected of so many policies tried; a dot where a method has no more of them."""
    if not table.blocks:
        return None
    block = max(table.blocks, key=lambda b: b.size)
    found = expected_scores(series, table, block)
    if max(map(len, found.values())) < 2:
        return None
    figure, (ax,) = new_figure(1, 1, 6.0, 3.2)
    for method, scores in found.items():
        ax.plot(range(1, len(scores) + 1), scores, color=_colour(table, method), label=method)
        ax.plot(len(scores), scores[-1], "o", color=_colour(table, method), markersize=3)
    most = max(map(len, found.values()))
    ax.set_xscale("log", base=2)
    ax.set_xticks([n for n in (2**power for power in range(10)) if n <= most])
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.set_xlabel("policies tried in the environment")
    ax.set_ylabel("expected score of the best")
    ax.legend(frameon=False, fontsize="small")
    return figure, f"Expected score by the number of policies tried, mean over the {block.name}"


def _stability(table: ScoreTable) -> tuple[Figure, str]:
    """The paper's two bar charts, the means first, in rows that fit the width of a page."""
    methods = table.stability_methods
    means = [(f"mean of {len(block.datasets)}", table.stability_means(block)) for block in table.blocks]
    tasks = [
        (
            short_name(data),
            {m: [found.percent for found in s.stability()] for m, s in table.stability_row(data).items()},
        )
        for data in table.datasets
    ]
    groups = [*means, *tasks]
    across = min(len(groups), GROUPS_IN_A_ROW)
    rows = [groups[start : start + across] for start in range(0, len(groups), across)]
    figure, axes = new_figure(2 * len(rows), 1, 2.0 + max(0.9, 0.06 * len(methods)) * across, 2.0)
    width = 0.8 / len(methods)
    for i, ax in enumerate(axes):
        which, row = divmod(i, len(rows))
        for k, method in enumerate(methods):
            found = [percents.get(method, (None, None))[which] for _, percents in rows[row]]
            heights = [np.nan if percent is None else percent for percent in found]
            places = np.arange(len(found)) + (k - (len(methods) - 1) / 2) * width
            ax.bar(places, heights, width, color=_colour(table, method), label=method)
        ax.axhline(0, color="0.3", linewidth=0.8)
        ax.set_xticks(range(len(rows[row])), [name for name, _ in rows[row]], fontsize="small")
        ax.set_xlim(-0.5, across - 0.5)
        ax.set_ylabel("percent")
        if row == 0:
            ax.set_title(("worst episode", "worst of the last evaluations")[which], fontsize="medium", loc="left")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper left", frameon=False, fontsize="small", ncols=6
    )
    return figure, DEFINITION


def _ablations(table: ScoreTable) -> tuple[Figure, str] | None:
    methods = [method for method in table.methods if method.split("@")[0].split(" ")[0] in ABLATIONS]
    if len(methods) < 2:
        return None
    figure, axes = new_figure(len(table.datasets), 3, 3.2, 2.4)
    for ax, data in zip(axes, table.datasets, strict=True):
        row = table.row(data)
        for method in (m for m in methods if m in row):
            curve = row[method].curve()
            steps = [step for step, _ in curve]
            mean = np.array([values.mean() for _, values in curve])
            spread = np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for _, values in curve])
            ax.plot(steps, mean, color=_colour(table, method), label=method)
            ax.fill_between(steps, mean - spread, mean + spread, color=_colour(table, method), alpha=0.15, linewidth=0)
        ax.set_title(data, fontsize="small", loc="left")
        ax.tick_params(labelsize="small")
    named = {line.get_label(): line for ax in axes for line in ax.get_lines()}  # not every task has all of them
    figure.legend(
        [named[m] for m in methods], methods, loc="outside upper left", frameon=False, fontsize="small", ncols=4
    )
    axes[0].set_ylabel("score")
    axes[0].set_xlabel("gradient steps")
    return figure, "SBAC and its ablations: mean over seeds, the shaded area one standard deviation between seeds"


def _profiles(table: ScoreTable) -> tuple[Figure, str] | None:
    if not table.blocks:
        return None
    block = max(table.blocks, key=lambda b: b.size)
    highest = max(float(scores.max()) for method in block.methods for scores in table.scores(block, method))
    thresholds = np.linspace(0.0, max(1.0, highest), 101)
    figure, (ax,) = new_figure(1, 1, 6.0, 3.2)
    for method, (share, low, high) in table.profiles(block, thresholds).items():
        ax.plot(thresholds, share, color=_colour(table, method), label=method)
        ax.fill_between(thresholds, low, high, color=_colour(table, method), alpha=0.12, linewidth=0)
    ax.set_xlabel("score")
    ax.set_ylabel("share of runs above it")
    ax.legend(frameon=False, fontsize="small")
    return figure, f"Performance profiles over {block.name} that every method shown here has, with 95 % bands"
