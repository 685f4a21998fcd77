"""The page's first section: what came of the runs."""

from collections.abc import Iterable, Sequence
from html import escape

from sbac.lab.cells import CellRecord, MeasuredRun
from sbac.lab.report.html import labelled_cell, note, plain_table
from sbac.lab.tables import difference
from sbac.results.outcome import verdict
from sbac.results.series import Series
from sbac.results.statistics import mean_interval, paired_difference
from sbac.text import number_or_blank, within


def outcome_section(series: Sequence[Series]) -> str:
    """Of runs: the log, the clone and the policy side by side, a verdict, and what is known without an environment."""
    runs = [s for s in series if not isinstance(s.record, CellRecord)]
    played, unplayed = [s for s in runs if s.evaluated], [s for s in runs if not s.evaluated]
    verdicts = [verdict([s for s in played if s.record is record]) for record in _distinct_records(played)]
    parts = [f"<p><strong>{escape(text)}</strong></p>" for text in verdicts if text]
    if played:
        heads = ("policy", "seeds", "the log", "its best tenth", "the clone", "the policy", "policy less clone")
        words = (
            "Normalised scores (returns where the task has no reference returns); in brackets the 95 % interval over "
            "seeds. The clone imitates the log; a policy that does not beat it has gained nothing by learning."
        )
        parts.append(plain_table(heads, [_outcome_row(s, heads) for s in played]) + note(words))
    if unplayed:
        heads = ("policy", "seeds", "steps", "last losses", "distance from the logged actions")
        words = (
            "No environment was given, so nothing was played. Losses: of the last phase, at its end, the mean over "
            "seeds. Distance: the mean of |policy's action - logged action| in states of the log, as a share of the "
            "action's range."
        )
        parts.append(plain_table(heads, [_unplayed_row(s, heads) for s in unplayed]) + note(words))
    return "".join(parts)


def _distinct_records(series: Sequence[Series]) -> list[MeasuredRun]:
    return list({id(s.record): s.record for s in series}.values())


def _row(s: Series, heads: Sequence[str], cells: Iterable[str]) -> str:
    name = escape(s.data)
    texts = "".join(labelled_cell(head, escape(text)) for head, text in zip(heads[1:], cells, strict=True))
    return f'<tr data-task="{name}"><th scope="row">{escape(s.label)}<small>{name}</small></th>{texts}</tr>'


def _outcome_row(s: Series, heads: Sequence[str]) -> str:
    clone = s.clone_scores
    cells = [str(len(s.trials)), number_or_blank(s.data_mean), number_or_blank(s.best_tenth)]
    cells += ["" if clone is None else within(*mean_interval(clone)), within(*mean_interval(s.scores))]
    return _row(s, heads, [*cells, "" if clone is None else difference(paired_difference(s.scores, clone))])


def _unplayed_row(s: Series, heads: Sequence[str]) -> str:
    tables = [t for t in s.record.metrics if all(s.setting.get(k) == v for k, v in t.setting.items())]
    last = {name: column[-1] for name, column in tables[-1].values.items()} if tables else {}
    losses = [f"{name} {value:.4g}" for name, value in last.items() if "loss" in name and value is not None]
    known = [] if s.record.actions is None else s.record.actions.policies
    far = next((entry.distance for entry in known if entry.setting == s.setting), None)
    distance = "the log is not here" if far is None else f"{far:.3f}"
    return _row(s, heads, [str(len(s.trials)), s.steps, ", ".join(losses), distance])
