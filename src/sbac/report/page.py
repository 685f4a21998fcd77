"""One self-contained HTML file: sections of tables, charts and notes that read without scripts.

Whatever comes from outside (names of data, of settings, of machines) is escaped by the template.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sbac.records import as_json
from sbac.report import charts
from sbac.report.charts import Chart, Shown
from sbac.report.drawing import colour_of
from sbac.report.verdict import verdict_lines
from sbac.results.measured import MeasuredRun
from sbac.results.outcome import difference, replaced_text, verdict
from sbac.results.series import Series, series_of
from sbac.results.statistics import mean_interval, paired_difference
from sbac.text import counted, counted_policies, number, number_or_blank, phases_text, setting_text, within
from sbac.trust.choice import LOG, CandidateRecord, ChoiceRecord
from sbac.trust.describe import decimals, episode_text, log_text, logged_text

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """`below` stands below its name, `note` below its last cell."""

    name: str
    cells: Sequence[str]
    task: str = ""
    below: str = ""
    note: str = ""


@dataclass(frozen=True)
class PageTable:
    """A table that sorts by its columns. On a phone they stand below each other, each with its name."""

    heads: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class PagePart:
    """A part of a section, folded under its summary where it has one."""

    lines: Sequence[str] = ()
    texts: Sequence[str] = ()
    warnings: Sequence[str] = ()
    table: PageTable | None = None
    charts: Sequence[Chart] = ()
    facts: Mapping[str, object] | None = None
    notes: Sequence[str] = ()
    summary: str = ""
    unfolded: bool = False
    task: str = ""


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    parts: Sequence[PagePart]


def render(
    title: str,
    subtitle: str,
    sections: Iterable[Section],
    *,
    tasks: Sequence[str] = (),
    methods: Sequence[str] = (),
    card: bool = False,
) -> str:
    """The page. Sections without parts are left out. `card`: a page without a script.

    tasks, methods: what it can be filtered by.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["setting_text"] = setting_text
    style, script = (Markup((HERE / name).read_text()) for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        sections=[section for section in sections if section.parts],
        tasks=tasks,
        methods={name: colour_of(name, methods) for name in methods},
        card=card,
        style=style,
        script=script,
    )


def run_page(record: MeasuredRun, title: str = "sbac report", choice: ChoiceRecord | None = None) -> str:
    """The page of one run. `choice`: what `sbac select` says of it, which comes first."""
    return runs_page([record], series_of(record), title, choice)


def runs_page(
    records: Sequence[MeasuredRun], series: Sequence[Series], title: str, choice: ChoiceRecord | None = None
) -> str:
    """The page of some runs, whose series have names that tell them apart."""
    datasets = list(dict.fromkeys(s.data for s in series))
    by_dataset = {data: {s.label: s for s in series if s.data == data} for data in datasets}
    sections = [
        *([] if choice is None else [answer_section(choice)]),
        outcome_section(series),
        Section("scores", "Scores", every_setting(series)),
        *chart_sections(by_dataset),
        config_section(records),
    ]
    return render(title, subtitle(records, series), sections, tasks=datasets, methods=labels_of(by_dataset))


def subtitle(records: Sequence[MeasuredRun], series: Sequence[Series]) -> str:
    """What a page is about, in a line."""

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


# --- What came out ------------------------------------------------------------------------------------------------


def answer_section(choice: ChoiceRecord) -> Section:
    """What the log alone says: the policy that is taken, what it is expected to earn, what speaks against it."""
    taken = next(candidate for candidate in choice.candidates if candidate.label == choice.label)
    verdict, *texts = verdict_lines(taken, choice.log)
    part = PagePart(
        lines=[verdict],
        texts=[*texts, f"{choice.label} is taken: {choice.reason}."],
        warnings=taken.warnings,
        table=compared_table(choice),
        notes=[f"{compared_note(choice)} sbac report --card says more of the policy that is taken."],
    )
    return Section("answer", "What the log says", [part])


def compared_table(choice: ChoiceRecord, best: str = "taken") -> PageTable:
    """All policies that were judged, below the log. best: what became of the one that was chosen."""
    digits = decimals(choice.log.value)

    def fate(row: CandidateRecord) -> str:
        return best if row.label == choice.label else "set aside" if row.set_aside else ""

    def gain(row: CandidateRecord) -> str:
        return "" if row.gain is None else within(row.gain, row.gain_low, row.gain_high, digits)

    log = Row(LOG, [logged_text(choice.log)[0], "", log_text(choice.log)])
    rows = [
        Row(row.label, [episode_text(row), gain(row), fate(row)], note="; ".join(row.warnings))
        for row in choice.candidates
    ]
    return PageTable(["policy", "whole episode", "gain over the log", ""], [log, *rows])


def compared_note(choice: ChoiceRecord) -> str:
    return (
        f"From the log alone ({choice.log.name}); in brackets 90 % intervals. A whole episode: what it earns in "
        f"a learned model, in at most {choice.log.steps:,} steps. Gains are discounted ({choice.discount:g}), over the "
        f"log's {logged_text(choice.log)[1]}."
    )


def outcome_section(series: Sequence[Series]) -> Section:
    """Of runs: the log, the clone and the policy side by side, a verdict, and what is known without an environment."""
    played, unplayed = [s for s in series if s.evaluated], [s for s in series if not s.evaluated]
    by_record = [list(of_one) for _, of_one in groupby(played, key=lambda s: id(s.record))]
    parts: list[PagePart] = []
    if played:
        heads = ("policy", "seeds", "the log", "its best tenth", "the clone", "the policy", "policy less clone")
        words = (
            "Normalised scores (returns where the task has no reference returns); in brackets the 95 % interval over "
            "seeds. The clone imitates the log; a policy that does not beat it has gained nothing by learning."
        )
        verdicts = [text for text in map(verdict, by_record) if text]
        replaced = [text for (first, *_) in by_record if (text := replaced_text(first.record))]
        table = PageTable(heads, [_outcome_row(s) for s in played])
        parts.append(PagePart(lines=verdicts, warnings=replaced, table=table, notes=[words]))
    if unplayed:
        heads = ("policy", "seeds", "steps", "last losses", "distance from the logged actions")
        words = (
            "Without an environment: sbac select RUN judges these policies from the log alone. Losses: of the last "
            "phase, at its end, the mean over seeds. Distance: the mean of |policy's action - logged action| in states "
            "of the log, as a share of the action's range."
        )
        parts.append(PagePart(table=PageTable(heads, [_unplayed_row(s) for s in unplayed]), notes=[words]))
    return Section("outcome", "What came out", parts)


def _outcome_row(s: Series) -> Row:
    clone = s.clone_scores
    texts = [
        str(len(s.trials)),
        number_or_blank(s.data_mean),
        number_or_blank(s.best_tenth),
        "" if clone is None else within(*mean_interval(clone)),
        within(*mean_interval(s.scores)),
        "" if clone is None else difference(paired_difference(s.scores, clone)),
    ]
    return Row(s.label, texts, s.data, s.data)


def _unplayed_row(s: Series) -> Row:
    logged = charts.last_metrics(s)
    last = {} if logged is None else {name: column[-1] for name, column in logged[1].values.items()}
    losses = [f"{name} {value:.4g}" for name, value in last.items() if "loss" in name and value is not None]
    acts = charts.actions_of(s)
    distance = "the log is not here" if acts is None or acts.distance is None else f"{acts.distance:.3f}"
    texts = [str(len(s.trials)), s.steps, ", ".join(losses), distance]
    return Row(s.label, texts, s.data, s.data)


def every_setting(series: Sequence[Series]) -> list[PagePart]:
    """A row for every setting: nothing chosen, nothing left out."""
    parts: list[PagePart] = []
    for length in dict.fromkeys(s.length for s in series if s.evaluated):
        heads = ("dataset", "method", "setting", "steps", "seeds", "episodes", "mean", "sd over seeds", "worst episode")
        rows = [_setting_row(s) for s in series if s.evaluated and s.length == length]
        caption = (
            "Every setting that was trained: the last policy's final episodes, or those of the last evaluation during "
            "training where the final ones have not been played. Worst episode: of all seeds."
        )
        name = f"Every setting ({length})"
        parts.append(PagePart(table=PageTable(heads, rows), notes=[caption], summary=name, unfolded=len(rows) <= 30))
    return parts if series else [PagePart(notes=["There are no results yet."])]


def _setting_row(s: Series) -> Row:
    numbers = [len(s.trials), len(s.episodes[0]), number(s.mean), number_or_blank(s.deviation), number(s.worst)]
    return Row(s.data, [s.method, s.setting_name, s.steps, *map(str, numbers)], s.data)


# --- Charts -------------------------------------------------------------------------------------------------------


def labels_of(by_dataset: Mapping[str, Shown]) -> list[str]:
    """The names that charts give to series, each once."""
    return list(dict.fromkeys(name for shown in by_dataset.values() for name in shown))


def chart_sections(by_dataset: Mapping[str, Shown]) -> list[Section]:
    """Learning curves, what training logged, returns and actions. The latter two are of the first dataset."""
    names = labels_of(by_dataset)
    played = {data: {n: s for n, s in shown.items() if s.evaluated} for data, shown in by_dataset.items()}
    curves = [charts.curve_chart(data, shown, names) for data, shown in played.items() if shown]
    logged = _first(charts.logged_charts(data, shown, names) for data, shown in by_dataset.items())
    returns = [charts.return_chart(d, s, names) for d, s in by_dataset.items() if played[d] or _has_returns(s)]
    actions = _first(charts.action_charts(data, shown, names) for data, shown in by_dataset.items())
    return [
        _chart_section("curves", "Learning curves", curves, CURVES),
        _chart_section("logged", "What training logged", logged, _logged_note(logged)),
        _chart_section("histograms", "Returns and actions", [*returns, *actions], HISTOGRAMS),
    ]


def _chart_section(name: str, title: str, drawn: Sequence[Chart], note: str) -> Section:
    return Section(name, title, [PagePart(charts=drawn, notes=[note])] if drawn else [])


CURVES = (
    "Mean over seeds of the evaluations during training, the shaded area one standard deviation between seeds. "
    "Steps are counted over all phases. Dashed lines: the mean of the log's episodes, and the clone's score "
    "where all start from the same clone."
)
HISTOGRAMS = (
    "Returns: all reported episodes, and those of the data. Actions: what the policies do in states of the data, "
    "beside what the data did there, for each dimension of the action. Each line is scaled to its own highest bin; the "
    "data's is dashed."
)


def _first(of_datasets: Iterable[list[Chart]]) -> list[Chart]:
    """The charts of the first dataset that has any: those of all of them would fill the page."""
    return next((drawn for drawn in of_datasets if drawn), list[Chart]())


def _has_returns(shown: Shown) -> bool:
    return any(s.record.data.returns is not None for s in shown.values())


def _logged_note(logged: Sequence[Chart]) -> str:
    about_ratio = (
        " ratio_mean and ratio_ess are the mean and the effective sample size of the visitation ratio w over a batch, "
        "beta_ess is that of the action ratio, and trust is the power that w is raised to."
    )
    is_weighted = any(chart.title == "ratio_mean" for chart in logged)
    return f"Means over seeds, in the last phase.{about_ratio if is_weighted else ''}"


# --- Configurations -----------------------------------------------------------------------------------------------


def config_section(records: Sequence[MeasuredRun]) -> Section:
    parts = [PagePart(facts=facts(each), summary=_summary(each), task=each.data.name) for each in records]
    return Section("configs", "The configuration behind every number", parts)


def _summary(record: MeasuredRun) -> str:
    tried = [f"{name} {', '.join(map(setting_text, _values(record, name)))}" for name in record.grid]
    method = f"{record.algorithm} ({'; '.join([record.preset, *tried])})"
    return f"{record.data.name}: {method}, {phases_text(record.steps)} steps"


def _values(record: MeasuredRun, name: str) -> list[object]:
    """The values of an option, each once, in their order; some are lists."""
    return list({json.dumps(run.setting[name]): run.setting[name] for run in record.runs}.values())


def facts(record: MeasuredRun) -> dict[str, object]:
    """Everything that a number was made with; None for what is not known."""
    return {
        "method": f"{record.algorithm}, preset {record.preset}",
        "data": as_json(dataclasses.replace(record.data, returns=None)),
        **(record.columns or {}),
        "settings": {name: _values(record, name) for name in record.grid},
        "seeds": record.seeds,
        "config": record.config,
        "environment": record.environment,
        "evaluation": as_json(record.watched),
        "versions": record.versions,
    }
