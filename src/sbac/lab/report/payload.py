"""What the page's charts are drawn from, as JSON: every number in it comes from a record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sbac.lab.cells import MeasuredRun
from sbac.lab.tables import Block, ScoreTable, method_order, short_name
from sbac.records import Json
from sbac.results.describe import HISTOGRAM_BINS
from sbac.results.series import WAYS, Series
from sbac.results.stability import Stability
from sbac.results.statistics import Floats, Interval
from sbac.text import significant

METRIC_POINTS = 25
PROFILE_POINTS = 61
EVERY = "every"
JsonObject = Mapping[str, Json]


@dataclass(frozen=True)
class PageData:
    """Datasets and views by name, and series. A view says which series stands for which method."""

    datasets: Mapping[str, JsonObject]
    series: Sequence[JsonObject]
    views: Mapping[str, JsonObject]

    def json(self) -> JsonObject:
        """What the page's script reads."""
        return {"datasets": list(self.datasets.values()), "series": self.series, "views": list(self.views.values())}


def page_data(records: Sequence[MeasuredRun], series: Sequence[Series], tables: Sequence[ScoreTable]) -> PageData:
    """The data behind the charts of a page."""
    known = {id(s) for s in series}
    put_together = {id(s): s for table in tables for s in table.chosen.values() if id(s) not in known}
    shown = [*series, *put_together.values()]  # of several settings, each for the seeds that chose it
    places = {id(s): i for i, s in enumerate(shown)}
    bins = {name: _bins([s for s in series if s.data == name]) for name in dict.fromkeys(s.data for s in series)}
    views = {_view_name(table): _view(table, places) for table in tables} | _every(series, places)
    return PageData(
        {name: _dataset(next(s for s in series if s.data == name)) for name in bins},
        [_series(s, records, bins[s.data]) for s in shown],
        views,
    )


# --- Views --------------------------------------------------------------------------------------------------------


def _view_name(table: ScoreTable) -> str:
    return f"{WAYS[table.way]} ({table.length})".capitalize()


def _view(table: ScoreTable, places: Mapping[int, int]) -> JsonObject:
    everything = np.concatenate([s.scores for s in table.chosen.values() if s.unit == "score"] or [np.zeros(1)])
    thresholds = np.linspace(min(0.0, everything.min()), max(1.0, everything.max()), PROFILE_POINTS)
    first = table.methods[0]
    return {
        "name": _view_name(table),
        "way": table.way,
        "length": table.length,
        "methods": table.methods,
        "places": {data: {method: places[id(s)] for method, s in table.row(data).items()} for data in table.datasets},
        "online": {
            data: {label: places[id(s)] for label, s in table.stability_row(data).items() if label not in table.methods}
            for data in table.datasets
        },
        "blocks": [_block(table, block, thresholds) for block in table.blocks],
        "first": first,
        "better": {
            suite: {
                method: {"tasks": len(duel.datasets), "better": _bounds(duel.better)}
                for method, duel in table.duels(suite, first).items()
            }
            for suite in dict.fromkeys(block.suite for block in table.blocks)
        },
        "thresholds": significant(thresholds, 4),
    }


def _block(table: ScoreTable, block: Block, thresholds: Floats) -> JsonObject:
    profiles = table.profiles(block, thresholds)
    return {
        "name": block.name,
        "stability": table.stability_means(block),
        "iqm": {method: _bounds(iqm) for method, (_, iqm) in table.overall(block).items()},
        "profiles": {method: [significant(part, 4) for part in parts] for method, parts in profiles.items()},
    }


def _bounds(found: Interval) -> list[float | None]:
    return [None if value is None else significant([value], 5)[0] for value in found]


def _every(series: Sequence[Series], places: Mapping[int, int]) -> dict[str, JsonObject]:
    """Each setting by itself, nothing chosen: all there is for runs without final episodes."""
    views: dict[str, JsonObject] = {}
    for length in dict.fromkeys(s.length for s in series):
        group = [s for s in series if s.length == length]
        shown: dict[str, dict[str, int]] = {}
        for s in group:
            shown.setdefault(s.data, {})[s.label] = places[id(s)]
        labels = list(dict.fromkeys(s.label for s in sorted(group, key=_label_order)))
        name = f"Every setting ({length})"
        views[name] = {
            "name": name,
            "way": EVERY,
            "length": length,
            "methods": labels,
            "places": shown,
            "online": {},
            "blocks": [],
            "first": labels[0],
            "better": {},
            "thresholds": [],
        }
    return views


def _label_order(s: Series) -> tuple[object, ...]:
    """By method, then by the values of its settings."""
    return (*method_order(s.method), *s.setting_order)


# --- Series and datasets ------------------------------------------------------------------------------------------


def _series(s: Series, records: Sequence[MeasuredRun], bins: Floats) -> JsonObject:
    return {
        "data": s.data,
        "method": s.method,
        "label": s.label,
        "unit": s.unit,
        "seeds": len(s.trials),
        **(_evaluations(s, bins) if s.evaluated else {}),
        "actions": _action_counts(s),
        "metrics": _metrics(s),
        "record": next(i for i, record in enumerate(records) if record is s.record),
    }


def _bins(series: Sequence[Series]) -> Floats:
    """The same bins for everything measured on a dataset, and for its own returns."""
    ends = [end for s in series if s.evaluated for episodes in s.episodes for end in (episodes.min(), episodes.max())]
    known = series[0].record.data.returns
    if known is not None:
        ends += series[0].measured(np.array(known.edges)[[0, -1]]).tolist()
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    return np.linspace(low, high if high > low else low + 1.0, HISTOGRAM_BINS + 1)


def _evaluations(s: Series, bins: Floats) -> JsonObject:
    curve = s.curve()
    episode, evaluation = s.stability()
    counts, edges = np.histogram(np.concatenate(s.episodes), bins)
    clone = s.clone_scores
    return {
        "clone": None if clone is None else significant([clone.mean()], 5)[0],
        "x": [step for step, _ in curve],
        "y": significant([values.mean() for _, values in curve], 5),
        "sd": significant([values.std(ddof=1) if len(values) > 1 else 0.0 for _, values in curve], 4),
        "stability": [_stability(episode), _stability(evaluation)],
        "returns": {"edges": significant(edges, 5), "counts": counts.tolist()},
    }


def _stability(found: Stability) -> JsonObject:
    return {"percent": found.percent, "counted": found.counted, "seeds": found.seeds}


def _action_counts(s: Series) -> list[list[int]] | None:
    """How often the policies of the series take each action, where its record says so."""
    policies = [] if s.record.actions is None else s.record.actions.policies
    return next((entry.counts for entry in policies if entry.setting == s.setting), None)


def _metrics(s: Series) -> JsonObject | None:
    """What the last phase logged, thinned out."""
    tables = [t for t in s.record.metrics if all(s.setting.get(k) == v for k, v in t.setting.items())]
    if not tables:
        return None
    table = tables[-1]
    before = sum(s.record.steps[: len(tables) - 1])
    kept = sorted({int(place) for place in np.linspace(0, len(table.steps) - 1, METRIC_POINTS)})
    return {
        "x": [before + table.steps[i] for i in kept],
        "values": {name: [values[i] for i in kept] for name, values in table.values.items()},
    }


def _dataset(s: Series) -> JsonObject:
    """The data behind a series: how its returns and actions are spread, where its record says so."""
    known, actions = s.record.data.returns, s.record.actions
    returns = None
    if known is not None:
        edges = significant(s.measured(np.array(known.edges)), 5)
        returns = {"mean": s.data_mean, "edges": edges, "counts": known.counts}
    return {
        "name": s.data,
        "short": short_name(s.data),
        "kind": s.record.data.kind,
        "unit": s.unit,
        "mean": s.data_mean,
        "returns": returns,
        "actions": None if actions is None else {"low": actions.low, "high": actions.high, "data": actions.data},
    }
