"""One self-contained HTML file: tables that read without scripts, charts drawn by a small script from embedded JSON.

Whatever comes from outside (names of data, of settings, of machines) is escaped where it enters the page.
"""

import base64
import dataclasses
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files as resources

from sbac import files
from sbac.lab.cells import CellRecord, MeasuredRun
from sbac.lab.commands import bench_commands
from sbac.lab.report.html import head_cell, labelled_cell, note, plain_table
from sbac.lab.report.outcome_section import outcome_section
from sbac.lab.report.payload import EVERY, PageData, page_data
from sbac.lab.tables import (
    PAPER_NOTES,
    W_NOTE,
    Block,
    ScoreTable,
    data_order,
    difference,
    excludes_zero,
    method_order,
    paper_score,
    score_tables,
    short_name,
    what_w_changes,
)
from sbac.records import Json, as_json, is_list, is_object
from sbac.results.series import BEST, PRESET, Series, collect
from sbac.results.stability import DEFINITION
from sbac.results.statistics import Interval
from sbac.text import counted, counted_policies, number, number_or_blank, phases_text, setting_text

ABBREVIATIONS = (
    "HC = HalfCheetah, Hop = Hopper, W = Walker2d; r = random, m = medium, mr = medium-replay, me = medium-expert, "
    "e = expert."
)
ONLINE_NOTE = "Grey: methods that learned online, in the environment of the task."
EVERY_COLUMNS = ("method", "setting", "steps", "seeds", "episodes", "mean", "sd over seeds", "worst episode")
Strip = tuple[str, bytes]
"""A caption and a PNG."""


def build_page(
    records: Sequence[MeasuredRun],
    title: str = "sbac report",
    strips: Sequence[Strip] = (),
    developed_on: Sequence[MeasuredRun] = (),
) -> str:
    """The page of some records; the one setting of a method comes from the trainings it was developed on, if given."""
    found = collect(records, developed_on)
    series = sorted(found, key=lambda s: (data_order(s.data), method_order(s.method), s.length))
    tables = score_tables(series)
    data = page_data(records, series, tables)
    sections = [
        _section("outcome", "What came out", outcome_section(series)) if outcome_section(series) else "",
        _section("scores", "Scores", "".join(_scores(table, i) for i, table in enumerate(tables)) + _every(series)),
        _section("overall", "Over all tasks", _overall_text() + _charts("overall")) if tables else "",
        _section("w", "What w changes", _what_w_changes(series)) if what_w_changes(series) else "",
        _section("curves", "Learning curves", _curves_text() + _charts("curves")),
        _section("stability", "Stability", _charts("stability") + _stability_text(series)),
        _section("logged", "What training logged", _logged_text(series) + _charts("logged")),
        _section("histograms", "Returns and actions", _histogram_text() + _charts("histograms")),
        _section("rollouts", "Rollouts", "".join(map(_strip, strips))) if strips else "",
        _section("configs", "The configuration behind every number", _configs(records)),
    ]
    return _template(title, _subtitle(records, series), data, [s for s in sections if s])


def _template(title: str, subtitle: str, data: PageData, sections: Sequence[str]) -> str:
    assets = resources("sbac.report")
    style, script = ((assets / name).read_text() for name in ("page.css", "page.js"))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    views = "".join(f'<option value="{i}">{escape(name)}</option>' for i, name in enumerate(data.views))
    names = "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in data.datasets)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(subtitle)}</p>
<button id="theme" type="button" aria-label="Light or dark">◐</button>
</header>
<nav aria-label="What is shown">
<label>Task <select id="task"><option value="">all</option>{names}</select></label>
<label>Settings <select id="view">{views}</select></label>
<div id="methods" role="group" aria-label="Methods shown"></div>
</nav>
<main>
{"".join(sections)}
</main>
<div id="tip" role="status" hidden></div>
<script type="application/json" id="data">{embedded(data.json())}</script>
<script>{script}</script>
</body>
</html>
"""


def embedded(value: Json) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(files.finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>\n'


def _charts(name: str) -> str:
    return f'<div class="cards" data-charts="{name}"></div>'


def _subtitle(records: Sequence[MeasuredRun], series: Sequence[Series]) -> str:
    def count(values: Iterable[str], what: str) -> str:
        distinct = len(set(values))
        return counted(distinct, what) if distinct else ""

    parts = [
        count((s.data for s in series if not s.record.is_online), "dataset"),
        count((s.data for s in series if s.record.is_online), "environment"),
        count((s.method for s in series), "method"),
        counted_policies(sum(len(s.trials) for s in series)),
        "sbac " + ", ".join(dict.fromkeys(record.code_version or "?" for record in records)),
    ]
    return " · ".join(filter(None, parts))


# --- Tables -------------------------------------------------------------------------------------------------------


def _scores(table: ScoreTable, view: int) -> str:
    """Datasets by methods; the table of another view is hidden by the script."""
    heads = "".join(head_cell(m, _one_setting(table, m), table.choice(m)) for m in table.methods)
    rows = "".join(_score_row(table, data) for data in table.datasets)
    means = "".join(_mean_row(table, block) for block in table.blocks)
    foot = f"<tfoot>{means}</tfoot>" if means else ""
    caption = (
        "Normalised score of the last policy (its return where the task has no reference returns), mean ± standard "
        "deviation over seeds; the highest mean of a row is bold; "
        "in italics what the paper printed for that method and task. Data: the mean of its own episodes. "
        "Settings were chosen on other episodes than those reported, among as many as stand under them (else one). "
        f"{table.fixed_note}{table.diverged_note}"
    )
    papers = any(paper_score(s) is not None for s in table.chosen.values())
    return (
        f'<div class="view" data-view="{view}"><div class="scroll"><table class="sortable scores">'
        f"<thead><tr>{head_cell('dataset', 'kind, steps')}{head_cell('data', 'its episodes')}{heads}</tr></thead>"
        f"<tbody>{rows}</tbody>{foot}</table></div>{note(caption)}" + (note(PAPER_NOTES) if papers else "") + "</div>"
    )


def _mean_row(table: ScoreTable, block: Block) -> str:
    def cell(method: str) -> str:
        if method not in block.methods:
            return "<td></td>"
        printed = table.paper_mean(block, method)
        paper = None if printed is None else (printed, None)
        return _score_cell(table.mean(block, method), table.deviation(block, method), paper, "", False)

    cells = _data_cell(table.data_mean(block)) + "".join(map(cell, table.methods))
    return f"<tr><th>mean of {escape(block.name)}</th>{cells}</tr>"


def _data_cell(mean: float | None) -> str:
    return "<td></td>" if mean is None else f'<td data-value="{mean!r}">{number(mean)}</td>'


def _one_setting(table: ScoreTable, method: str) -> str:
    """What stands under a method's name; where settings differ between tasks, they stand in the cells."""
    settings = table.settings(method)
    if len(settings) == 1:
        return next(iter(settings))
    return "best" if table.choice(method) and table.way == BEST else PRESET


def _score_row(table: ScoreTable, data: str) -> str:
    row = table.row(data)
    best = max(s.mean for s in row.values())
    # Where no length was asked for, every preset has its own.
    asked_for = all(isinstance(s.record, CellRecord) and s.record.length for s in row.values())
    steps = table.length if asked_for else ", ".join(dict.fromkeys(s.steps for s in row.values()))
    kind = ", ".join(dict.fromkeys(s.record.data.kind for s in row.values()))
    cells = _data_cell(table.data_score(data)) + "".join(
        _score_cell(
            row[method].mean,
            row[method].deviation,
            paper_score(row[method]),
            "" if len(table.settings(method)) == 1 else row[method].setting_name,
            row[method].mean == best,
        )
        if method in row
        else "<td></td>"
        for method in table.methods
    )
    name = escape(data)
    # Below the name and not in columns of their own: on a phone the scores come first.
    about = f"<small>{escape(kind)}, {escape(steps)}</small>"
    return f'<tr data-task="{name}"><th scope="row" data-value="{name}">{name}{about}</th>{cells}</tr>'


def _score_cell(
    mean: float, deviation: float | None, paper: tuple[float, float | None] | None, below: str, best: bool
) -> str:
    value = f"<b>{number(mean)}</b>" if best else number(mean)
    spread = "" if deviation is None else f'<span class="sd"> ± {deviation:.1f}</span>'
    beside = "" if paper is None else f' <i title="printed in the paper">{number(*paper)}</i>'
    small = f"<small>{escape(below)}</small>" if below else ""
    return f'<td data-value="{mean!r}">{value}{spread}{beside}{small}</td>'


def _every(series: Sequence[Series]) -> str:
    """A row for every setting: nothing chosen, nothing left out."""
    rows = "".join(_setting_row(s) for s in series if s.evaluated)
    if not rows:
        return note("Nothing was played: see above what can be said without an environment.")
    caption = (
        "Every setting that was trained: the last policy's final episodes, or those of the last evaluation during "
        "training where the final ones have not been played. Worst episode: of all seeds."
    )
    return (
        f'<details class="view" data-view="{EVERY}" open><summary>Every setting</summary>'
        f"{plain_table(('dataset', *EVERY_COLUMNS), [rows])}{note(caption)}</details>"
    )


def _setting_row(s: Series) -> str:
    texts = [s.method, s.setting_name, s.steps]
    played = str(len(s.episodes[0]))
    numbers = [str(len(s.trials)), played, number(s.mean), number_or_blank(s.deviation), number(s.worst)]
    texts_and_orders = [*((text, None) for text in texts), *((value, value) for value in numbers)]
    cells = "".join(
        labelled_cell(head, escape(text), order)
        for head, (text, order) in zip(EVERY_COLUMNS, texts_and_orders, strict=True)
    )
    name = escape(s.data)
    return f'<tr data-task="{name}"><th scope="row">{name}</th>{cells}</tr>'


def _what_w_changes(series: Sequence[Series]) -> str:
    """A table for each length of training: datasets by settings."""
    tables: list[str] = []
    for length, rows in what_w_changes(series).items():
        settings = next(iter(rows.values()))
        heads = "".join(head_cell(name) for name in ("dataset", *settings))
        body = "".join(
            f'<tr data-task="{escape(data)}"><th scope="row" data-value="{escape(data)}">{escape(data)}</th>'
            + "".join(map(_difference_cell, row.values()))
            + "</tr>"
            for data, row in rows.items()
        )
        table = f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        tables.append(f'<div class="scroll">{table}</div>{note(f"{length.capitalize()}. {W_NOTE}")}')
    return "".join(tables)


def _difference_cell(found: Interval | None) -> str:
    if found is None:
        return "<td></td>"
    text = difference(found)
    return f'<td data-value="{found.value!r}">{f"<b>{text}</b>" if excludes_zero(found) else text}</td>'


# --- Words beside the charts --------------------------------------------------------------------------------------


def _overall_text() -> str:
    return note(
        "Over the tasks that every method shown in a chart has. Dots: the mean of the middle half of all runs, and the "
        "probability that a run of the first method beats one of the other, on the tasks that both have (how many "
        "stands in brackets); lines: 95 % intervals of the bootstrap that draws seeds within each task. Profiles: the "
        "share of runs that score more than the value on the axis."
    )


def _curves_text() -> str:
    return note(
        "Mean over seeds of the evaluations during training, the shaded area one standard deviation between seeds. "
        "Steps are counted over all phases. Dashed lines: the mean of the log's episodes, and the clone's score."
    )


def _stability_text(series: Sequence[Series]) -> str:
    shortened = any(short_name(s.data) != s.data for s in series)
    online = any(s.record.is_online for s in series)
    notes = [DEFINITION, *([ABBREVIATIONS] if shortened else []), *([ONLINE_NOTE] if online else [])]
    return "".join(map(note, notes))


def _logged_text(series: Sequence[Series]) -> str:
    means = "Means over seeds, in the last phase."
    if not any("ratio_mean" in table.values for s in series for table in s.record.metrics):
        return note(means)
    return note(
        f"{means} ratio_mean and ratio_ess are the mean and the effective sample size of the visitation ratio w over a "
        "batch, beta_ess is that of the action ratio, and trust is the power that w is raised to."
    )


def _histogram_text() -> str:
    return note(
        "Returns: all reported episodes, and those of the data. Actions: what the policies do in states of the data, "
        "beside what the data did there, for each dimension of the action. Each line is scaled to its own highest bin."
    )


def _strip(strip: Strip) -> str:
    caption, image = strip
    source = base64.b64encode(image).decode()
    text = escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{source}"><figcaption>{text}</figcaption></figure>'


# --- Configurations -----------------------------------------------------------------------------------------------


def _configs(records: Sequence[MeasuredRun]) -> str:
    return "".join(_config(record, i) for i, record in enumerate(records))


def _distinct(values: Iterable[object]) -> list[object]:
    """Each once, in their order; some are lists."""
    return list({json.dumps(value): value for value in values}.values())


def _config(record: MeasuredRun, index: int) -> str:
    about = _about(record)
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{_value(value)}</td></tr>"
        for name, value in about.items()
        if value is not None
    )
    name = escape(record.data.name)
    tried = [
        f"{name} {', '.join(dict.fromkeys(setting_text(run.setting[name]) for run in record.runs))}"
        for name in record.grid
    ]
    method = f"{escape(record.algorithm)} ({escape('; '.join([record.preset, *tried]))})"
    return (
        f'<details class="config" data-task="{name}" id="record-{index}">'
        f"<summary>{name}: {method}, {phases_text(record.steps)} steps</summary>"
        f'<div class="scroll"><table>{rows}</table></div></details>'
    )


def _about(record: MeasuredRun) -> dict[str, object]:
    """Everything that a number was made with; None for what is not known."""
    cell = record if isinstance(record, CellRecord) else None
    return {
        "method": f"{record.algorithm}, preset {record.preset}",
        "data": as_json(dataclasses.replace(record.data, returns=None)),
        "settings": {name: _distinct(run.setting[name] for run in record.runs) for name in record.grid},
        "seeds": record.seeds,
        "config": record.config,
        "environment": record.environment,
        "evaluation": as_json(record.watched if cell is None else cell.protocol),
        "code": None if cell is None else as_json(cell.code),
        "versions": record.versions,
        "machine": None if cell is None else cell.machine,
        "date": None if cell is None else cell.date,
        "seconds of training": None if cell is None else cell.seconds,
        "cell": None if cell is None else cell.key,
        "command": next(iter(bench_commands([record])), None),
    }


def _value(value: object) -> str:
    if is_object(value):
        return "<br>".join(f"{escape(name)}: {_value(entry)}" for name, entry in value.items())
    return escape(", ".join(map(setting_text, value)) if is_list(value) else setting_text(value))
