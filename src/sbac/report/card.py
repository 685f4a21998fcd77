"""The policy card: one page for a person who decides whether a policy is used. It needs no script.

It says what the log does, what the policy would change and where, what improvement is expected and what that rests on,
and what speaks against it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files as resources

import numpy as np
from numpy.typing import NDArray

from sbac.nn import GaussianPolicy
from sbac.report.card_picture import returns_picture
from sbac.runs import Run, offered, policy_record
from sbac.text import setting_text
from sbac.trust.behaviour import behaviour_at, clone, compared_rows, departures
from sbac.trust.choosing import CandidateRecord, ChoiceRecord
from sbac.trust.describe import basis, decimals
from sbac.trust.log import Acts, JudgedLog

SHOWN_STATES = 5
SHOWN_FEATURES = 6
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
    features: list[tuple[int, float, float]]
    """The features that set the state apart: number, value, and deviations from the log's mean."""


def build_card(run: Run, log: JudgedLog, choice: ChoiceRecord, label: str | None = None) -> str:
    """The page. `label`: another policy than the one that was chosen."""
    chosen = label or choice.label
    policy = next(policy for policy in offered(run.policies) if policy_record(policy).label == chosen)
    about = next(row for row in choice.candidates if row.label == chosen)
    model = clone(log, (64, 64), 0)
    rows = compared_rows(log)
    distances = departures(log, model, policy, rows)
    truth = true_returns(run, about)
    sections = [
        _section("In short", _verdict(about, choice)),
        _section("Expected improvement", _improvement(log, about, choice, truth)),
        _section("What the policy would change", _changes(distances, largest(log, model, policy, rows, distances))),
        _section("What the log does", _log_text(log)),
        _section("What the estimate rests on", _basis(about, choice)),
        _section("The policies that were compared", _table(choice)),
    ]
    title = f"Policy card: {run.record.algorithm}, {chosen}"
    style = (resources("sbac.report") / "page.css").read_text() + STYLE
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body class="policy-card">
<header>
<h1>{escape(title)}</h1>
<p>learned from {escape(log.data.name)}; judged from the log, without a simulator</p>
</header>
<main>
{"".join(sections)}
</main>
</body>
</html>
"""


STYLE = """
.policy-card header, .policy-card main { max-width: 860px; }
.policy-card .warning { border-left: 4px solid var(--c1); padding: 4px 12px; margin: 8px 0; background: var(--soft); }
.policy-card .answer { font-size: 18px; margin: 4px 0 10px; }
.policy-card td, .policy-card th { white-space: normal; }
.policy-card svg { width: 100%; height: auto; }
.policy-card section { margin: 26px 0; }
"""


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n"


# --- What is found ----------------------------------------------------------------------------------------------------


def true_returns(run: Run, about: CandidateRecord) -> list[float] | None:
    """The discounted returns of the policy's last evaluation, where it was evaluated."""
    if about.label not in run.record.labels:
        return None  # a dial at another alpha: no such policy was evaluated
    rows = [
        row.episodes.discounted_returns
        for row in run.evaluation_rows
        if row.place.seed == about.seed
        and row.episodes.discounted_returns is not None
        and all(row.place.setting.get(name, value) == value for name, value in about.setting.items())
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
        features = [(int(k), float(observation[k]), float(z[k])) for k in np.argsort(-np.abs(z))[:SHOWN_FEATURES]]
        action = np.asarray(policy(observation[None])[0], np.float64)
        if (np.abs(action - mean) < VISIBLE * 2 * log.units.action_half).all():
            continue
        seen.add(int(episode[i]))
        found.append(Departure(row, float(distances[i]), np.asarray(mean, np.float64), action, features))
    return found


# --- Text -------------------------------------------------------------------------------------------------------------


def _verdict(about: CandidateRecord, choice: ChoiceRecord) -> str:
    digits = decimals(choice.log)
    low, high, gain = about.gain_low, about.gain_high, about.gain
    if gain is None:
        answer = "Its training has diverged: do not use it."
    elif low is None or high is None:
        answer = "Nothing reliable can be said of its improvement from this log alone. The reasons stand below."
    elif low > 0:
        between = f"with 90 % between {low:.{digits}f} and {high:.{digits}f}"
        answer = f"Expected to be better than the log by {gain:.{digits}f}, {between}."
    elif high < 0:
        answer = f"Expected to be worse than the log, by {-gain:.{digits}f}: do not use it."
    else:
        answer = f"It may be better or worse than the log: between {low:.{digits}f} and {high:.{digits}f}, at 90 %."
    units = f"In discounted returns (discount {choice.discount:g}), of which the log's mean is {choice.log:.{digits}f}."
    taken = f"<p class=note>{units}</p><p>{escape(choice.label)} was taken: {escape(choice.reason)}.</p>"
    other = "" if about.label == choice.label else f"<p>This card is about {escape(about.label)}.</p>"
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in about.warnings)
    return f'<p class="answer"><strong>{escape(answer)}</strong></p>{taken}{other}{warnings}'


def _improvement(log: JudgedLog, about: CandidateRecord, choice: ChoiceRecord, truth: list[float] | None) -> str:
    words = (
        "<p class=note>Grey: the discounted returns of the log's episodes. Blue: the estimate for the policy, with its "
        "90 % interval where there is one."
        + (" Green: returns of the policy in the environment." if truth else "")
        + "</p>"
    )
    if about.value is None:
        return "<p>There is no estimate.</p>"
    interval = None if about.low is None or about.high is None else (about.low, about.high)
    return words + returns_picture(log.returns, about.value, interval, truth)


def _changes(distances: NDArray[np.float64], states: Sequence[Departure]) -> str:
    shares = [100 * float((distances > limit).mean()) for limit in (1, 2, 3)]
    text = (
        f"<p>Over the log's states the policy's action lies {distances.mean():.1f} of the log's own deviations away "
        f"from what the log does on average: more than 1 in {shares[0]:.0f} % of the states, more than 2 in "
        f"{shares[1]:.0f} %, more than 3, where there is hardly any data, in {shares[2]:.0f} %.</p>"
    )
    if not states:
        return f"{text}<p>In no state does its action differ from that by more than {VISIBLE:.0%} of the range.</p>"
    rows = "".join(
        f"<tr><th>row {state.row}</th><td>{state.distance:.1f}</td><td>{_numbers(state.log_action)}</td>"
        f"<td>{_numbers(state.policy_action)}</td><td>{_features(state)}</td></tr>"
        for state in states
    )
    head = "<tr><th>state</th><th>deviations</th><th>the log on average</th><th>the policy's</th><th>features</th></tr>"
    return f"{text}<div class=scroll><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>" + (
        '<p class="note">The states where it departs most, one of each episode, with the features that set them apart: '
        "number = value (deviations from the log's mean).</p>"
    )


def _numbers(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _features(state: Departure) -> str:
    return ", ".join(f"{number} = {value:.3g} ({z:+.1f})" for number, value, z in state.features)


def _log_text(log: JudgedLog) -> str:
    data, lengths = log.data, np.diff(log.data.episodes, axis=1)[:, 0]
    ended = int(data.terminals.sum())
    digits = decimals(float(log.returns.mean()))
    return (
        f"<p>{len(data):,} decisions in {log.episodes:,} episodes of {lengths.mean():.0f} steps on average; {ended:,} "
        f"of them ended by themselves, {log.episodes - ended:,} by a time limit. Their mean discounted return is "
        f"{log.returns.mean():.{digits}f} (discount {log.discount:g}, standard deviation "
        f"{log.returns.std():.{digits}f}), their mean return {data.returns.mean():.{digits}f}.</p>"
    )


def _basis(about: CandidateRecord, choice: ChoiceRecord) -> str:
    if not about.diagnostics:
        return "<p>Nothing could be estimated.</p>"
    rows = basis(about, decimals(choice.log))
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<div class=scroll><table><tbody>{body}</tbody></table></div>"


def _table(choice: ChoiceRecord) -> str:
    digits = decimals(choice.log)

    def shown(value: float | None) -> str:
        return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"

    def interval(row: CandidateRecord) -> str:
        return "none" if row.gain_low is None else f"{shown(row.gain_low)} to {shown(row.gain_high)}"

    rows = "".join(
        f"<tr><th>{escape(row.label)}</th><td>{escape(setting_text(row.setting.get('alpha', '')))}</td>"
        f"<td>{shown(row.episode)}</td><td>{shown(row.gain)}</td><td>{interval(row)}</td>"
        f"<td>{'taken' if row.label == choice.label else 'set aside' if row.set_aside else ''}"
        f"<small>{escape('; '.join(row.warnings))}</small></td></tr>"
        for row in choice.candidates
    )
    head = "<tr><th>policy</th><th>alpha</th><th>whole episode</th><th>gain</th><th>90 % interval</th><th></th></tr>"
    return f"<div class=scroll><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>"
