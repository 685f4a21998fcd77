"""The charts of series: learning curves, what training logged, returns and actions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from sbac.report.drawing import GREY, Line, colour_of, line_chart, numbers
from sbac.results.describe import HISTOGRAM_BINS
from sbac.results.measured import ActionCounts, MetricTable
from sbac.results.series import Series
from sbac.results.statistics import Floats
from sbac.text import number

METRIC_POINTS = 25
Shown = Mapping[str, Series]
"""The series of one dataset by the names that a chart gives them."""


@dataclass(frozen=True)
class Chart:
    """A picture with its heading. `task`: the data that it is about, which a page may be filtered by."""

    title: str
    small: str
    svg: Markup
    task: str = ""
    wide: bool = False


def curve_line(name: str, s: Series, colour: str) -> Line:
    """The mean over seeds, with one standard deviation between them. Where a policy starts as the clone, so does it."""
    curve = s.curve()
    clones = [trial.clone for trial in s.trials if trial.clone is not None]
    if s.record.config.get("objective") == "scale-free" and s.clone_scores is not None and clones[0][0] < curve[0][0]:
        curve = [(clones[0][0], s.clone_scores), *curve]
    mean = np.array([values.mean() for _, values in curve])
    spread = np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for _, values in curve])
    x, tip = numbers(step for step, _ in curve), number(float(mean[-1]))
    return Line(name, colour, x, numbers(mean), numbers(mean - spread), numbers(mean + spread), tip=tip)


def curve_rules(series: Iterable[Series]) -> tuple[tuple[str, float], ...]:
    """The mean of the log's episodes, and the clones' where all series share them."""
    shown = list(series)
    log = next((s.data_mean for s in shown if s.data_mean is not None), None)
    clones = {round(float(s.clone_scores.mean()), 6) for s in shown if s.clone_scores is not None}
    rules = [] if log is None else [("the log", log)]
    return (*rules, *([("the clone", clones.pop())] if len(clones) == 1 else []))


def curve_chart(data: str, shown: Shown, names: Sequence[str]) -> Chart:
    lines = tuple(curve_line(name, s, colour_of(name, names)) for name, s in shown.items())
    unit = next(iter(shown.values())).unit
    return Chart(data, unit, line_chart(lines, curve_rules(shown.values()), "gradient steps"), data)


def logged_charts(data: str, shown: Shown, names: Sequence[str]) -> list[Chart]:
    """What the last phase logged, thinned out; what is about the ratio first."""
    tables = {name: logged for name, s in shown.items() if (logged := last_metrics(s)) is not None}
    columns = dict.fromkeys(column for _, table in tables.values() for column in table.values)
    charts: list[Chart] = []
    for column in sorted(columns, key=lambda column: not re.match("ratio|beta|trust", column)):
        lines: list[Line] = []
        for name, (before, table) in tables.items():
            if column in table.values:
                kept = sorted({int(place) for place in np.linspace(0, len(table.steps) - 1, METRIC_POINTS)})
                x = numbers(before + table.steps[i] for i in kept)
                lines.append(Line(name, colour_of(name, names), x, numbers(table.values[column][i] for i in kept)))
        charts.append(Chart(column, data, line_chart(tuple(lines), (), "gradient steps"), data))
    return charts


def last_metrics(s: Series) -> tuple[int, MetricTable] | None:
    """What the series logged in its last phase, and the gradient steps before it."""
    tables = [t for t in s.record.metrics if s.includes(t.setting)]
    return (sum(s.record.steps[: len(tables) - 1]), tables[-1]) if tables else None


def return_chart(data: str, shown: Shown, names: Sequence[str]) -> Chart:
    """How the reported episodes and those of the data are spread, each scaled to its own highest bin."""
    played = {name: np.concatenate(s.episodes) for name, s in shown.items() if s.evaluated}
    first = next(iter(shown.values()))
    logged = first.record.data.returns
    edges_of_log = None if logged is None else first.measured(np.array(logged.edges))
    ends = np.concatenate([*played.values(), *([] if edges_of_log is None else [edges_of_log])])
    ends = ends[np.isfinite(ends)]
    low, high = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, HISTOGRAM_BINS + 1)
    lines = [_stairs(name, colour_of(name, names), edges, np.histogram(v, edges)[0]) for name, v in played.items()]
    if logged is not None and edges_of_log is not None:
        lines.append(_stairs("data", GREY, edges_of_log, np.array(logged.counts)))
    return Chart(data, f"{first.unit}s of episodes", line_chart(tuple(lines), (), first.unit), data)


def action_charts(data: str, shown: Shown, names: Sequence[str]) -> list[Chart]:
    """A chart for each dimension of the action."""
    return [
        Chart(name, data, line_chart(tuple(lines), (), "action"), data)
        for name, lines in action_lines(shown, names).items()
    ]


def action_lines(shown: Shown, names: Sequence[str]) -> dict[str, list[Line]]:
    """What the policies do in states of the data, beside what the data did there: for each action, by its name."""
    record = next((s.record for s in shown.values() if s.record.actions is not None), None)
    if record is None or record.actions is None:
        return {}
    actions, drawn = record.actions, dict[str, list[Line]]()
    for i, counts in enumerate(actions.data):
        edges = np.linspace(actions.low[i], actions.high[i], len(counts) + 1)
        policies = {name: taken for name, s in shown.items() if (taken := actions_of(s)) is not None}
        lines = [_stairs(name, colour_of(name, names), edges, np.array(p.counts[i])) for name, p in policies.items()]
        title = f"Action {i + 1}" if record.columns is None else record.columns["actions"][i]
        drawn[title] = [*lines, _stairs("data", GREY, edges, np.array(counts))]
    return drawn


def actions_of(s: Series) -> ActionCounts | None:
    """How often the policies of the series take each action, where its record says so."""
    policies = [] if s.record.actions is None else s.record.actions.policies
    return next((entry for entry in policies if s.includes(entry.setting)), None)


def _stairs(name: str, colour: str, edges: Floats, counts: Floats) -> Line:
    """Narrow and wide distributions stand in one chart: each is scaled to its own highest bin."""
    shares = counts / max(float(counts.max(initial=0)), 1.0)
    return Line(name, colour, numbers(edges), numbers(shares), stairs=True, dashed=colour == GREY)
