"""The policy card: one page for a person who decides whether a policy is used. It needs no script.

It says what the log does, what the policy would change and where, what improvement is expected and what that rests on,
and what speaks against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sbac.nn import GaussianPolicy
from sbac.policy import Policy
from sbac.report.charts import Chart
from sbac.report.drawing import COLOURS, GREY, new_figure, svg_element, svg_text
from sbac.report.page import PagePart, PageTable, Row, Section, compared_note, compared_table, render
from sbac.report.verdict import verdict_lines
from sbac.runs import Run, policy_record
from sbac.trust.behaviour import behaviour_at, clone, compared_rows, departures
from sbac.trust.choice import CandidateRecord, ChoiceRecord, LogRecord, policy_of
from sbac.trust.describe import basis, decimals, watched_text, worse
from sbac.trust.log import Acts, JudgedLog

SHOWN_STATES = 5
SHOWN_FEATURES = 6
HIDDEN = (
    "All of this is read from the log. A hidden cause, which those who acted knew of and no column shows, cannot be "
    "seen: the promise may then be wrong without a warning."
)
VISIBLE = 0.01
"""Of an action's range: less is no other action. At a bound, where the log always is, a hair is many deviations."""


@dataclass(frozen=True)
class Departure:
    """A state of the log at which the policy acts unlike the log."""

    row: int
    distance: float
    """In the log's own deviations."""
    log_action: NDArray[np.float64]
    policy_action: NDArray[np.float64]
    features: list[tuple[str, float, float]]
    """The columns that set the state apart: name, value, and deviations from the log's mean."""


def build_card(
    run: Run,
    log: JudgedLog,
    choice: ChoiceRecord,
    label: str | None = None,
    opening: Sequence[str] = (),
    best: str = "taken",
) -> str:
    """The page.

    label: another policy than the one that was chosen.
    opening: what `sbac learn` says first.
    best: what became of the one that was chosen.
    """
    chosen = label or choice.label
    about = next(row for row in choice.candidates if row.label == chosen)
    policy = policy_of(run, about)
    model = clone(log, (64, 64), 0)
    rows = compared_rows(log)
    distances = departures(log, model, policy, rows)
    states = largest(log, model, policy, rows, distances)
    truth = true_returns(run, about)
    members = members_text(policy, log.data.observations[rows])
    compared = PagePart(table=compared_table(choice, best), notes=[compared_note(choice)])
    parts = [
        ("short", "In short", _verdict(about, choice, opening)),
        ("improvement", "Expected improvement", _improvement(choice.log, about, truth)),
        ("changes", "What the policy would change", _changes(distances, states, log.data.columns["actions"], members)),
        ("log", "What the log does", _log_part(log, choice.log, run.record.notes or [])),
        ("basis", "What the estimate rests on", _basis(about, choice)),
        ("policies", "The policies that were compared", compared),
    ]
    sections = [Section(name, heading, [part]) for name, heading, part in parts]
    title = f"Policy card: {policy_record(policy).algorithm}, {chosen}"
    learned = ", ".join(choice.log.learned_elsewhere) or log.data.name
    judged = f"judged on {log.data.name}, another log," if choice.log.learned_elsewhere else "judged from the log,"
    return render(title, f"learned from {learned}; {judged} without a simulator", sections, card=True)


# --- What is found ----------------------------------------------------------------------------------------------------


def true_returns(run: Run, about: CandidateRecord) -> list[float] | None:
    """The discounted returns of the policy's last evaluation, where it is the run's and was evaluated."""
    if about.label not in run.record.labels:
        return None
    rows = [
        row.episodes.discounted_returns
        for row in run.evaluation_rows
        if row.episodes.policy is not None
        and row.episodes.policy == about.policy
        and row.episodes.discounted_returns is not None
    ]
    return rows[-1] if rows else None


def largest(
    log: JudgedLog, model: GaussianPolicy, policy: Acts, rows: NDArray[np.int64], distances: NDArray[np.float64]
) -> list[Departure]:
    """The states at which the policy departs most: one of each episode, so that they are different situations.

    None where its action looks like the log's.
    """
    episode = np.searchsorted(log.data.episodes[:, 1], rows, side="right")
    found: list[Departure] = []
    seen: set[int] = set()
    for i in np.argsort(-distances):
        if int(episode[i]) in seen or len(found) == SHOWN_STATES:
            continue
        row = int(rows[i])
        observation = log.data.observations[row]
        states = log.units.states(observation[None])
        mean = np.tanh(behaviour_at(model, states)[0][0]) * log.units.action_half + log.units.action_centre
        z = states[0]
        largest_first, names = np.argsort(-np.abs(z))[:SHOWN_FEATURES], log.data.columns["observations"]
        features = [(names[int(k)], float(observation[k]), float(z[k])) for k in largest_first]
        action = np.asarray(policy(observation[None])[0], np.float64)
        if (np.abs(action - mean) < VISIBLE * 2 * log.units.action_half).all():
            continue
        seen.add(int(episode[i]))
        found.append(Departure(row, float(distances[i]), np.asarray(mean, np.float64), action, features))
    return found


# --- Text -------------------------------------------------------------------------------------------------------------


def _verdict(about: CandidateRecord, choice: ChoiceRecord, opening: Sequence[str]) -> PagePart:
    first, *texts = opening or [*verdict_lines(about, choice.log), f"{choice.label} was taken: {choice.reason}."]
    if about.label != choice.label:
        texts.append(f"This card is about {about.label}.")
    texts += [f"Watched: {watched_text(each)}." for each in about.watched]
    warnings = [*about.warnings, *worse(about), *(f"The log: {text}" for text in choice.log.warnings)]
    notes = [*choice.log.notes, *about.left_out, HIDDEN]
    return PagePart(lines=[first], texts=texts, warnings=warnings, notes=notes)


def _improvement(log: LogRecord, about: CandidateRecord, truth: list[float] | None) -> PagePart:
    if about.value is None:
        return PagePart(texts=["There is no estimate."])
    words = (
        "Grey: the discounted returns of the log's episodes, behind a time limit as if they went on. Blue: the "
        "estimate for the policy, with its 90 % interval where there is one."
        + (" Green: returns of the policy in the environment, as far as its episodes went." if truth else "")
    )
    interval = None if about.low is None or about.high is None else (about.low, about.high)
    picture = returns_picture(log.returns, log.value, about.value, interval, truth)
    return PagePart(charts=[Chart("Discounted returns", "", picture, wide=True)], notes=[words])


def returns_picture(
    returns: Sequence[float],
    mean: float,
    value: float,
    interval: tuple[float, float] | None,
    truth: Sequence[float] | None,
) -> Markup:
    """A histogram of the log's returns with their mean, the estimate above it and, where it is known, the truth."""
    figure, (ax,) = new_figure(1, 1, 5.4, 2.4)  # a phone shows it hardly smaller
    ax.hist(returns, 40, color="0.8")
    ax.yaxis.set_visible(False)
    marks = [("the log's mean", mean, GREY, 0.8), ("estimate", value, COLOURS[0], 0.98)]
    if truth:
        marks.append(("in the environment", float(np.mean(truth)), COLOURS[2], 0.89))
        ax.plot(truth, np.zeros(len(truth)), "o", color=COLOURS[2], alpha=0.7, clip_on=False)
    low, high = ax.get_xlim()
    for name, place, colour, height in marks:
        ax.axvline(place, ymax=height, color=colour)
        # A higher line would cross the name: it stands on the other side then.
        crossed = any(0 <= other - place < 0.3 * (high - low) for _, other, _, top in marks if top > height)
        side: dict[str, Any] = {"xytext": (-4, -8), "ha": "right"} if crossed else {"xytext": (4, -8)}
        spot = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate(name, (place, height), color=colour, fontsize="small", **spot, **side)
    if interval is not None:
        across = ax.get_xaxis_transform()
        ax.plot(interval, [1, 1], color=COLOURS[0], linewidth=5, alpha=0.45, transform=across, clip_on=False)
    return svg_element(svg_text(figure))


def members_text(policy: Policy, observations: NDArray[np.float32]) -> list[str]:
    """How far the members of a committee are apart; nothing for another policy."""
    members = policy.config.get("members")
    if members is None:
        return []
    apart = 100 * policy.disagreement(observations)
    return [
        f"Its {len(members)} members are apart by {apart.mean():.1f} % of the range of actions on average, and by more "
        f"than {np.quantile(apart, 0.9):.1f} % in one state in ten."
    ]


def _changes(
    distances: NDArray[np.float64], states: Sequence[Departure], actions: Sequence[str], members: Sequence[str]
) -> PagePart:
    shares = [100 * float((distances > limit).mean()) for limit in (1, 2, 3)]
    text = (
        f"Over the log's states the policy's action lies {distances.mean():.1f} of the log's own deviations away "
        f"from what the log does on average: more than 1 in {shares[0]:.0f} % of the states, more than 2 in "
        f"{shares[1]:.0f} %, more than 3, where there is hardly any data, in {shares[2]:.0f} %."
    )
    if not states:
        alike = f"In no state does its action differ from that by more than {VISIBLE:.0%} of the range."
        return PagePart(texts=[text, *members, alike])
    heads = ("state", "deviations", "the log on average", "the policy's", "observations")
    rows = [
        Row(f"row {s.row}", [f"{s.distance:.1f}", _numbers(s.log_action), _numbers(s.policy_action), _features(s)])
        for s in states
    ]
    note = (
        "The states where it departs most, one of each episode, with the observations that set them apart: "
        f"name = value (deviations from the log's mean). The actions are {', '.join(actions)}."
    )
    return PagePart(texts=[text, *members], table=PageTable(heads, rows), notes=[note])


def _numbers(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _features(state: Departure) -> str:
    return ", ".join(f"{name} = {value:.3g} ({z:+.1f})" for name, value, z in state.features)


def _log_part(log: JudgedLog, row: LogRecord, notes: Sequence[str]) -> PagePart:
    data, lengths = log.data, np.diff(log.data.episodes, axis=1)[:, 0]
    ended = int(data.terminals.sum())
    digits = decimals(row.value)
    text = (
        f"{len(data):,} decisions in {log.episodes:,} episodes of {lengths.mean():.0f} steps on average; {ended:,} "
        f"of them ended by themselves, {log.episodes - ended:,} by a time limit. Their mean discounted return is "
        f"{row.value:.{digits}f} (discount {log.discount:g}; behind a time limit as if they went on), their mean "
        f"return {row.episode:.{decimals(row.episode)}f}."
    )
    return PagePart(texts=[text, *(f"When it was read: {note}." for note in notes)])


def _basis(about: CandidateRecord, choice: ChoiceRecord) -> PagePart:
    if not about.diagnostics:
        return PagePart(texts=["Nothing could be estimated."])
    return PagePart(facts=dict(basis(about, decimals(choice.log.value))))
