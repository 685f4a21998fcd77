"""The tables of a results folder as Markdown: what docs/results.md is rebuilt from."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sbac import files
from sbac.errors import UserError
from sbac.lab.cells import CellRecord
from sbac.lab.commands import bench_commands
from sbac.lab.naming import collect
from sbac.lab.paper import NOTES, paper_score
from sbac.lab.representing import ONE
from sbac.lab.tables import Block, ScoreTable, expected_scores, score_tables
from sbac.records import as_json, is_list, is_object, parse
from sbac.results.measured import MeasuredRun
from sbac.results.series import Series
from sbac.results.stability import DEFINITION
from sbac.text import (
    counted_policies,
    markdown_table,
    markdown_text,
    number,
    number_or_blank,
    percent,
    phases_text,
    within,
)

TRIES = (1, 2, 3, 5, 10, 20, 35)
"""For how many policies tried a table has a column."""
MARKUP = re.compile(r"[\\`*\[\]]")
BEGIN, END = "<!-- tables: begin (written by sbac report) -->", "<!-- tables: end -->"


def results_markdown(records: Sequence[MeasuredRun], developed_on: Sequence[MeasuredRun] = ()) -> str:
    """All tables of some cells; the one setting of a method comes from the trainings it was developed on, if given."""
    commands = "\n".join(bench_commands(records))
    records, developed_on = (list(map(_escaped, group)) for group in (records, developed_on))
    series = collect(records, developed_on)
    tables = score_tables(series)
    if not records:
        return "No cell has been measured yet."
    parts = [part for table in tables for part in (*_scores(table), *_overall(table), *_stability(table))]
    parts += _expected(series, tables)
    unfinished = sorted({f"{s.data} {s.method}" for s in series if not s.is_final})
    if unfinished:
        parts.append(f"Trained, and not yet measured with their final episodes: {', '.join(unfinished)}.")
    if any(paper_score(s) is not None for s in series):
        parts.append(NOTES)
    return "\n\n".join([*parts, *_provenance(records, commands)])


def _escaped(record: MeasuredRun) -> MeasuredRun:
    """The record with names that Markdown shows as they are: tables mark numbers up, names must not."""

    def escaped(value: object) -> object:
        if isinstance(value, str):
            return MARKUP.sub(r"\\\g<0>", value).replace("<", "&lt;")
        if is_object(value):
            return {escaped(key): escaped(entry) for key, entry in value.items()}
        return [escaped(entry) for entry in value] if is_list(value) else value

    written: object = as_json(record)
    plain = escaped(written)
    return record if plain == written else parse(type(record), plain, "the record")


def _scores(table: ScoreTable) -> list[str]:
    head = ["dataset", "kind", "steps", "data", *table.methods]
    rows = [
        [
            data,
            _kind(row),
            _steps(row),
            number_or_blank(table.data_score(data)),
            *(_entry(row, m) for m in table.methods),
        ]
        for data, row in ((data, table.row(data)) for data in table.datasets)
    ]
    for block in table.blocks:
        entries = [_mean_entry(table, block, method) for method in table.methods]
        rows.append([f"mean of {block.name}", "", "", number_or_blank(table.data_mean(block)), *entries])
    text = (
        "Mean ± standard deviation over seeds, the highest of a row in bold; in italics what the paper printed for "
        "that method and task. Data: the mean of its own episodes."
    )
    parts = [
        f"## Scores: {table.title}",
        markdown_table(head, rows),
        text,
        markdown_text(table.diverged_note),
        _settings(table),
    ]
    return [part for part in parts if part]


def _entry(row: dict[str, Series], method: str) -> str:
    if method not in row:
        return ""
    found = row[method]
    ours = number(found.mean, found.deviation)
    best = found.mean == max(s.mean for s in row.values())
    return _beside(f"**{ours}**" if best else ours, *(paper_score(found) or (None,)))


def _mean_entry(table: ScoreTable, block: Block, method: str) -> str:
    if method not in block.methods:
        return ""
    ours = number(table.mean(block, method), table.deviation(block, method))
    return _beside(ours, table.paper_mean(block, method))


def _beside(ours: str, paper: float | None, paper_deviation: float | None = None) -> str:
    """Our number, and the paper's in italics."""
    return ours if paper is None else f"{ours} *{number(paper, paper_deviation)}*"


def _kind(row: dict[str, Series]) -> str:
    return ", ".join(dict.fromkeys(s.record.data.kind for s in row.values()))


def _steps(row: dict[str, Series]) -> str:
    return ", ".join(dict.fromkeys(s.steps for s in row.values()))


def _settings(table: ScoreTable) -> str:
    def chosen(method: str) -> str:
        by_setting, choice = table.settings(method), table.choice(method)
        name = f"{method} ({choice})" if choice else method
        if len(by_setting) == 1:
            return f"{name}: {next(iter(by_setting))}"
        return f"{name}: " + "; ".join(f"{setting} on {', '.join(data)}" for setting, data in by_setting.items())

    head = "Settings, chosen on other episodes than those reported; in brackets how many were tried, where not one. "
    return head + table.fixed_note + ". ".join(map(chosen, table.methods)) + "."


def _overall(table: ScoreTable) -> list[str]:
    parts: list[str] = []
    for block in table.blocks:
        rows = [[method, *(within(*interval) for interval in found)] for method, found in table.overall(block).items()]
        who = "every method has" if block.methods == table.methods else f"these {len(block.methods)} methods have"
        parts += [f"### {block.name} that {who}", markdown_table(["method", "mean", "interquartile mean"], rows)]
        if len(block.methods) > 1:
            parts += _differences(table, block)
    if parts:
        parts.append("In brackets: 95 % intervals of the bootstrap that draws seeds within each dataset.")
    return parts


def _differences(table: ScoreTable, block: Block) -> list[str]:
    """How far the first method is ahead of each other one, or behind it."""
    first = block.methods[0]
    rows: list[list[str]] = []
    for method, found in table.differences(block, first).items():
        ahead = within(*found.tasks_fixed)
        bold = f"**{ahead}**" if found.holm else ahead
        rows.append([method, bold, within(*found.tasks_drawn), f"{found.p_value:.2g}"])
    head = ["method", f"{first} less it", "tasks drawn too", "p"]
    words = (
        f"Differences of means over the {block.name}, with 95 % intervals: seeds drawn anew within each task, and in "
        "the next column tasks drawn anew as well. Bold: zero is excluded at 5 % after Holm's correction."
    )
    return [markdown_table(head, rows), words]


def _expected(series: Sequence[Series], tables: Sequence[ScoreTable]) -> list[str]:
    """What a user gets who may try some policies of a method in the environment."""
    parts: list[str] = []
    for table in (table for table in tables if table.way == ONE):
        for block in table.blocks:
            found = expected_scores(series, table, block)
            most = max(map(len, found.values()))
            tries = [n for n in TRIES if n <= most]
            if len(tries) > 1:
                rows = [
                    [method, *(number(scores[n - 1]) if n <= len(scores) else "" for n in tries)]
                    for method, scores in found.items()
                ]
                head = ["method", *(counted_policies(n) for n in tries)]
                parts += [f"### {table.length}, {block.name}", markdown_table(head, rows)]
    if not parts:
        return []
    words = (
        "The expected score of the best of so many policies, drawn without replacement from a method's settings and "
        "seeds, chosen by their last evaluation during training and reported on the final episodes."
    )
    return ["## Scores by the number of policies tried in the environment", *parts, words]


def _stability(table: ScoreTable) -> list[str]:
    def entry(data: str, method: str) -> str:
        found = table.stability_row(data).get(method)
        return "" if found is None else _percents(found.stability())

    methods = table.stability_methods
    rows = [[data, *(entry(data, method) for method in methods)] for data in table.datasets]
    for block in table.blocks:
        means = table.stability_means(block)
        rows.append([f"mean of {block.name}", *(_percents(means[m]) if m in means else "" for m in methods)])
    return ["### Stability, in percent", markdown_table(["dataset", *methods], rows), DEFINITION]


def _percents(values: Iterable[float | None]) -> str:
    return " / ".join(map(percent, values))


def _provenance(records: Sequence[MeasuredRun], commands: str) -> list[str]:
    head = ["dataset", "kind", "rows", "data hash", "method", "preset", "steps", "seeds", "code", "machine", "date"]
    rows = [
        [
            cell.data.name,
            cell.data.kind,
            f"{cell.data.rows:,}",
            cell.data.hash[:12],
            cell.algorithm,
            cell.preset if cell.precision in (None, "tf32") else f"{cell.preset}, {cell.precision}",
            phases_text(cell.steps),
            str(len(cell.seeds)),
            f"{cell.code.version} {cell.code.hash[:8]}",
            cell.machine,
            cell.date[:10],
        ]
        for cell in records
        if isinstance(cell, CellRecord)
    ]
    return [
        "## How each number was made",
        markdown_table(head, rows),
        f"<!-- not run: they train -->\n```\n{commands}\n```",
    ]


def write_tables(path: Path, records: Sequence[MeasuredRun], developed_on: Sequence[MeasuredRun] = ()) -> None:
    """Puts tables and figures between their two marks in a page, or makes a page of them alone.

    The figures lie in a folder beside the page that bears its name.
    """
    from sbac.lab.report.figures import write_figures

    folder = path.with_suffix("")
    written = write_figures(records, folder, developed_on)
    figures = [f"![{markdown_text(caption)}]({folder.name}/{name})" for name, caption in written]
    text = "\n\n".join([results_markdown(records, developed_on), *(["## Figures", *figures] if figures else [])])
    before, after = "# Results\n\n", "\n"
    if path.exists():
        page = path.read_text(errors="surrogateescape")
        before, begin, rest = page.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end) or BEGIN in after or END in after:
            raise UserError(f"{path}: expected the lines {BEGIN!r} and {END!r}, once each, to put the tables between")
    files.write_atomic(path, f"{before}{BEGIN}\n\n{text}\n\n{END}{after}".encode(errors="surrogateescape"))
