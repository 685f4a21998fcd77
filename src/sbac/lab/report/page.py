"""The page of runs and results folders: score tables, what follows from them, and what a run's own page has."""

from collections.abc import Sequence

from sbac.lab.cells import CellRecord
from sbac.lab.commands import bench_commands
from sbac.lab.naming import collect, data_order, method_order, short_name
from sbac.lab.paper import NOTES, W_NOTE, paper_score, what_w_changes
from sbac.lab.report.figures import profiles_figure, stability_figure, tries_figure
from sbac.lab.representing import BEST, ONE, PRESET, WAYS
from sbac.lab.tables import Block, ScoreTable, score_tables
from sbac.records import as_json
from sbac.report.charts import Chart
from sbac.report.drawing import svg_element
from sbac.report.page import (
    ChartGroup,
    Head,
    PageCell,
    PagePart,
    PageTable,
    Row,
    Section,
    Strip,
    chart_sections,
    config_section,
    every_setting,
    facts,
    outcome_section,
    render,
    strip_section,
    subtitle,
)
from sbac.results.measured import MeasuredRun
from sbac.results.outcome import difference
from sbac.results.series import Series
from sbac.results.stability import DEFINITION
from sbac.results.statistics import Interval
from sbac.text import number, within

ABBREVIATIONS = (
    "HC = HalfCheetah, Hop = Hopper, W = Walker2d; r = random, m = medium, mr = medium-replay, me = medium-expert, "
    "e = expert."
)
ONLINE_NOTE = "Grey: methods that learned online, in the environment of the task."
OVERALL = (
    "Over tasks that all methods of a table have: the mean, and the mean of the middle half of all runs. The last "
    "column is the probability that a run of the first method beats one of the other, on the tasks of the suite that "
    "both have. In brackets: 95 % intervals of the bootstrap that draws seeds within each task."
)


def build_page(
    records: Sequence[MeasuredRun],
    title: str = "sbac report",
    strips: Sequence[Strip] = (),
    developed_on: Sequence[MeasuredRun] = (),
) -> str:
    """The page of some records; the one setting of a method comes from the trainings it was developed on, if given."""
    collected = collect(records, developed_on)
    series = sorted(collected, key=lambda s: (data_order(s.data), method_order(s.method), s.length, s.setting_order))
    tables = sorted(score_tables(series), key=lambda table: -len(table.methods))  # the fullest opens first
    groups = _groups(series, tables)
    sections = [
        outcome_section([s for s in series if not isinstance(s.record, CellRecord)]),
        Section("scores", "Scores", [*(_scores(t, i) for i, t in enumerate(tables)), *every_setting(series)]),
        Section("overall", "Over all tasks", [p for i, t in enumerate(tables) for p in _overall(series, t, i)]),
        Section("w", "What w changes", _what_w_changes(series)),
        Section("stability", "Stability", _stability(series, tables)),
        *chart_sections(groups),
        strip_section(strips),
        config_section([_facts(record) for record in records], records),
    ]
    return render(
        title,
        subtitle(records, series),
        sections,
        tasks=list(dict.fromkeys(s.data for s in series)),
        views=[f"{WAYS[table.way]} ({table.length})".capitalize() for table in tables],
        methods=list(dict.fromkeys(name for group in groups for name in group.names)),
    )


def _groups(series: Sequence[Series], tables: Sequence[ScoreTable]) -> list[ChartGroup]:
    """For each length of training what its charts show: the one setting of each method; without a table, every one."""
    groups: list[ChartGroup] = []
    for length in dict.fromkeys(s.length for s in series):
        views = [i for i, table in enumerate(tables) if table.length == length]
        one = next((table for table in tables if table.length == length and table.way == ONE), None)
        if one is not None:
            groups.append(ChartGroup({data: one.row(data) for data in one.datasets}, views))
        else:
            trained = [s for s in series if s.length == length]
            datasets = dict.fromkeys(s.data for s in trained)
            groups.append(ChartGroup({data: {s.label: s for s in trained if s.data == data} for data in datasets}))
    return groups


# --- Scores -------------------------------------------------------------------------------------------------------


def _scores(table: ScoreTable, view: int) -> PagePart:
    """Datasets by methods."""
    heads = [Head("dataset", ["kind, steps"]), Head("data", ["its episodes"])]
    heads += [Head(m, list(filter(None, [_one_setting(table, m), table.choice(m)]))) for m in table.methods]
    caption = (
        "Normalised score of the last policy (its return where the task has no reference returns), mean ± standard "
        "deviation over seeds; the highest mean of a row is bold; "
        "in italics what the paper printed for that method and task. Data: the mean of its own episodes. "
        "Settings were chosen on other episodes than those reported, among as many as stand under them (else one). "
        f"{table.fixed_note}{table.diverged_note}"
    )
    papers = any(paper_score(s) is not None for s in table.chosen.values())
    rows = [_score_row(table, data) for data in table.datasets]
    means = [_mean_row(table, block) for block in table.blocks]
    scores = PageTable(heads, rows, means, stacked=False)
    return PagePart(table=scores, notes=[caption, *([NOTES] if papers else [])], views=[view])


def _one_setting(table: ScoreTable, method: str) -> str:
    """What stands under a method's name; where settings differ between tasks, they stand in the cells."""
    settings = table.settings(method)
    if len(settings) == 1:
        return next(iter(settings))
    return "best" if table.choice(method) and table.way == BEST else PRESET


def _score_row(table: ScoreTable, data: str) -> Row:
    row = table.row(data)
    best = max(s.mean for s in row.values())
    # Where no length was asked for, every preset has its own.
    asked_for = all(isinstance(s.record, CellRecord) and s.record.length for s in row.values())
    steps = table.length if asked_for else ", ".join(dict.fromkeys(s.steps for s in row.values()))
    kind = ", ".join(dict.fromkeys(s.record.data.kind for s in row.values()))

    def cell(method: str) -> PageCell:
        if method not in row:
            return PageCell()
        s, below = row[method], "" if len(table.settings(method)) == 1 else row[method].setting_name
        return _score_cell(s.mean, s.deviation, paper_score(s), below, s.mean == best)

    cells = [_data_cell(table.data_score(data)), *map(cell, table.methods)]
    # Below the name and not in columns of their own: on a phone the scores come first.
    return Row(data, cells, data, f"{kind}, {steps}")


def _mean_row(table: ScoreTable, block: Block) -> Row:
    def cell(method: str) -> PageCell:
        if method not in block.methods:
            return PageCell()
        printed = table.paper_mean(block, method)
        paper = None if printed is None else (printed, None)
        return _score_cell(table.mean(block, method), table.deviation(block, method), paper)

    return Row(f"mean of {block.name}", [_data_cell(table.data_mean(block)), *map(cell, table.methods)])


def _data_cell(mean: float | None) -> PageCell:
    return PageCell() if mean is None else PageCell(number(mean), repr(mean))


def _score_cell(
    mean: float, deviation: float | None, paper: tuple[float, float | None] | None, below: str = "", best: bool = False
) -> PageCell:
    spread = "" if deviation is None else f"{deviation:.1f}"
    return PageCell(number(mean), repr(mean), best, spread, "" if paper is None else number(*paper), below)


# --- What follows -------------------------------------------------------------------------------------------------


def _overall(series: Sequence[Series], table: ScoreTable, view: int) -> list[PagePart]:
    """Means over tasks, and the figures of all runs."""
    parts: list[PagePart] = []
    first = table.methods[0]
    for block in table.blocks:
        duels = table.duels(block.suite, first)
        rows = [
            Row(
                method,
                [
                    PageCell(within(*mean)),
                    PageCell(within(*iqm)),
                    PageCell(within(*duels[method].better, digits=2) if method in duels else ""),
                ],
            )
            for method, (mean, iqm) in table.overall(block).items()
        ]
        heads = [block.name, "mean", "interquartile mean", f"P({first} better)"]
        parts.append(PagePart(table=PageTable([Head(name) for name in heads], rows), views=[view]))
    figures = {"Scores by policies tried": tries_figure(series, table), "Performance profiles": profiles_figure(table)}
    drawn = [Chart(name, "", svg_element(f[0]), wide=True) for name, f in figures.items() if f is not None]
    return [*parts, PagePart(charts=drawn, notes=[OVERALL], views=[view])] if parts else []


def _what_w_changes(series: Sequence[Series]) -> list[PagePart]:
    """A table for each length of training: datasets by settings."""
    parts: list[PagePart] = []
    for length, rows in what_w_changes(series).items():
        heads = [Head(name) for name in ("dataset", *next(iter(rows.values())))]
        body = [Row(data, [_difference_cell(change) for change in row.values()], data) for data, row in rows.items()]
        parts.append(PagePart(table=PageTable(heads, body, stacked=False), notes=[f"{length.capitalize()}. {W_NOTE}"]))
    return parts


def _difference_cell(change: Interval | None) -> PageCell:
    return PageCell() if change is None else PageCell(difference(change), repr(change.value), change.excludes_zero)


def _stability(series: Sequence[Series], tables: Sequence[ScoreTable]) -> list[PagePart]:
    titles = "Percent difference of the worst"
    parts = [
        PagePart(charts=[Chart(titles, table.title, svg_element(stability_figure(table)[0]), wide=True)], views=[i])
        for i, table in enumerate(tables)
    ]
    shortened = any(short_name(s.data) != s.data for s in series)
    online = any(s.record.is_online for s in series)
    notes = [DEFINITION, *([ABBREVIATIONS] if shortened else []), *([ONLINE_NOTE] if online else [])]
    return [*parts, PagePart(notes=notes)] if parts else []


def _facts(record: MeasuredRun) -> dict[str, object]:
    """What a run's page says of it, and how a bench made it."""
    if not isinstance(record, CellRecord):
        return facts(record)
    return {
        **facts(record),
        "evaluation": as_json(record.protocol),
        "code": as_json(record.code),
        "machine": record.machine,
        "date": record.date,
        "seconds of training": record.seconds,
        "cell": record.key,
        "command": next(iter(bench_commands([record])), None),
    }
