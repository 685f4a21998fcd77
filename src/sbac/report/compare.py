"""Two runs side by side: where their configurations differ, how their policies did, and what the log says of them."""

from collections.abc import Mapping

from sbac.records import as_json, is_list, is_object
from sbac.results.describe import describe
from sbac.results.outcome import replaced_text
from sbac.results.series import Series, series_of
from sbac.results.statistics import probability_of_improvement
from sbac.runs import Run
from sbac.text import counted, number, setting_text, text_table, within
from sbac.trust.choice import ChoiceRecord, read_choice
from sbac.trust.describe import decimals, episode_text

IGNORED = {"labels", "runs", "format", "command", "log", "paths"}


def compare(first: Run, second: Run, names: tuple[str, str]) -> str:
    """The comparison as text."""
    fields, scores, choices = differences(first, second), _scores(first, second), _choices(first, second, names)
    head = ["last evaluation", *names, "P(first better)"]
    parts = [
        text_table(["", *names], fields) if fields else "the configurations are the same",
        text_table(head, scores) if scores else "neither run was evaluated",
    ]
    for name, run in zip(names, (first, second), strict=True):
        if text := replaced_text(describe(run)):
            parts.append(f"{name}: {text}")
    if choices:
        parts.append(choices)
    elif not scores:
        parts.append("sbac select RUN judges a run from its log, without an environment")
    return "\n\n".join(parts)


def differences(first: Run, second: Run) -> list[list[str]]:
    """A row for each field in which the runs differ."""
    left, right = _fields(first), _fields(second)
    names = dict.fromkeys([*left, *right])
    return [[name, left.get(name, "-"), right.get(name, "-")] for name in names if left.get(name) != right.get(name)]


def _fields(run: Run) -> dict[str, str]:
    """Everything that defines a run, flat: a field of the algorithm with all the values it has in the grid."""
    fields: dict[str, str] = {}

    def flatten(prefix: str, value: object) -> None:
        if is_object(value):
            for key, entry in value.items():
                flatten(f"{prefix}.{key}" if prefix else key, entry)
        else:
            fields[prefix] = _text(value)

    flatten("", {name: value for name, value in as_json(run.record).items() if name not in IGNORED})
    for name in dict.fromkeys(name for config in run.record.runs for name in config):
        fields[name] = " ".join(dict.fromkeys(_text(config[name]) for config in run.record.runs))
    return fields


def _text(value: object) -> str:
    return ",".join(map(_text, value)) if is_list(value) else setting_text(value)


def _scores(first: Run, second: Run) -> list[list[str]]:
    """The log, the clones, and a row for each setting; where both runs have it, how likely a seed of the first beats
    one of the second. Where each run has one setting, they stand in one row."""
    left, right = ({_setting(s): s for s in series_of(describe(run)) if s.evaluated} for run in (first, second))
    if len(left) == len(right) == 1:
        a, b = next(iter(left.values())), next(iter(right.values()))
        name = _setting(a) if a.label == b.label else f"{a.label} / {b.label}"
        left, right = {name: a}, {name: b}
    rows = [["the log", *(_log(side) for side in (left, right)), ""]]
    rows.append(["the clone", *(_clone(side) for side in (left, right)), ""])
    rows = [row for row in rows if row[1:] != ["-", "-", ""]]
    for setting in dict.fromkeys([*left, *right]):
        a, b = left.get(setting), right.get(setting)
        better = ""
        if a is not None and b is not None and a.unit == b.unit:
            better = number(probability_of_improvement([a.scores], [b.scores]).value, digits=2)
        unit = next(s.unit for s in (a, b) if s is not None)
        rows.append([f"{setting} ({unit})".strip(), _score(a), _score(b), better])
    return rows


def _setting(s: Series) -> str:
    """Without the method, so that two methods with the same setting stand in one row."""
    return s.label.removeprefix(s.method).strip() or "all"


def _score(s: Series | None) -> str:
    return "-" if s is None else f"{number(s.mean, s.deviation)} ({counted(len(s.trials), 'seed')})"


def _log(side: Mapping[str, Series]) -> str:
    known = [s.data_mean for s in side.values() if s.data_mean is not None]
    return number(known[0]) if known else "-"


def _clone(side: Mapping[str, Series]) -> str:
    """The range, where clones differ between settings."""
    means = {number(float(s.clone_scores.mean())) for s in side.values() if s.clone_scores is not None}
    return " to ".join(sorted(means, key=float)[:: max(1, len(means) - 1)]) or "-"


def _choices(first: Run, second: Run, names: tuple[str, str]) -> str:
    """What `sbac select` found of the runs: the policy it takes, and its gain over the log. Empty: it was not asked."""
    found = [None if run.folder is None else read_choice(run.folder, run.policies) for run in (first, second)]
    judged = [choice for choice in found if choice is not None]
    if not judged:
        return ""
    columns = [_choice(choice) for choice in found]
    rows = [list(row) for row in zip(("policy", "gain", "whole episode", "warnings"), *columns, strict=True)]
    lines = [text_table(["from the log, by sbac select", *names], rows)]
    if len({(choice.log.hash, choice.discount) for choice in judged}) > 1:
        lines.append("they were judged on different logs, or with another discount: do not compare the gains")
    return "\n".join(lines)


def _choice(choice: ChoiceRecord | None) -> list[str]:
    """Of the policy that is taken: its name, its gain over the log, a whole episode in the learned model, warnings."""
    if choice is None:
        return ["not asked yet", "-", "-", "-"]
    taken = next(candidate for candidate in choice.candidates if candidate.label == choice.label)
    warnings = counted(len(taken.warnings), "warning") if taken.warnings else "none"
    if taken.gain is None:
        return [taken.label, "-", "-", warnings]
    gain = within(taken.gain, taken.gain_low, taken.gain_high, decimals(choice.log.value))
    return [taken.label, gain, episode_text(taken), warnings]
