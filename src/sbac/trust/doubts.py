"""The reasons not to believe an estimate. A warning is one line of `RULES`; thresholds do not depend on the task."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import stdtrit

from sbac.trust.estimators import ALWAYS, ESTIMATORS
from sbac.trust.evidence import Facts
from sbac.trust.log import FEWEST_EPISODES

LEVEL = 0.9
"""The nominal coverage of an interval."""
BEYOND = 0.05
"""How far, as a share of its width, a whole episode may lie outside of what the rewards allow."""
DIVERGED = 0.5
"""The same for fitted values and [r_min, r_max] / (1 - gamma). Less is taken back to the bound: where every step that
is survived earns the same, the best policies lie at it."""
MOVING = 0.5
"""Of half the interval's width: a gain that moved more than this in the last fifth of training has not settled."""
MISSED = 0.5
"""In standard deviations of the log's returns: by how much the method may miss the log's own value, which is known."""
LOST = 4.0
"""In deviations of what the log's episodes earn: a model that misses them by more is left out. By less, its miss widens
the interval: on development logs a model that misses by up to three still judges better than none."""
NEGLIGIBLE = 0.05
"""In the same deviations: what is never a reason."""
FAR = 1.5
"""In the log's own deviations, the mean over states: farther from its mean action there is next to no data."""
FAR_AT_TIMES = 3.0
"""The same for one state in ten: a policy that stays near the log mostly may still leave it where it matters."""
APART = 3.0
"""Of both estimators' deviations together, and half a deviation of the log's returns on top: if they differ by more,
they do not confirm each other."""
FOLLOWED = 0.8
"""Of the discounted time: where the model's rollouts are cut sooner, what they say is mostly fitted Q evaluation's own
word, which cannot confirm it."""


@dataclass(frozen=True)
class Rule:
    name: str
    holds: Callable[[Facts], bool]
    sentence: str
    """With the facts in braces."""


def goes_beyond(facts: Facts) -> bool:
    low, high = facts["lowest_possible"], facts["highest_possible"]
    slack = DIVERGED * (high - low)
    return facts["largest"] > high + slack or facts["least"] < low - slack


def episode_goes_beyond(facts: Facts) -> bool:
    low, high = facts["lowest_episode"], facts["highest_episode"]
    slack = BEYOND * (high - low)
    return facts["model_episode"] > high + slack or facts["model_episode"] < low - slack


def half_width(facts: Facts) -> float:
    """Half the width of the interval that the replicates of fitted Q evaluation give."""
    return student(facts["fitted_gain_draws"]) * facts["fitted_gain_spread"]


def still_moving(facts: Facts) -> bool:
    """No reason where a model leads: on development runs it then named good policies alone."""
    most = max(MOVING * half_width(facts), NEGLIGIBLE * facts["return_deviation"])
    return "model_gain" not in facts and abs(facts["moved"]) > most


def student(draws: float) -> float:
    """The factor of a standard deviation of so many draws."""
    return float(stdtrit(draws - 1, 0.5 + LEVEL / 2)) if draws > 1 else math.inf


def ends_early(facts: Facts) -> bool:
    """Discounted values hardly see a fall that comes late: whole episodes do."""
    most = facts["model_episode"] + 2 * facts["model_episode_spread"]
    gains = facts["fitted_gain"] + facts["model_gain"] > 0
    return gains and most < facts["log_episode"] - MISSED * facts["episode_deviation"]


def unconfirmed(name: str, title: str) -> Rule:
    """The rule for an estimator beside fitted Q evaluation."""

    def holds(facts: Facts) -> bool:
        spreads = half_width(facts) / 2 + facts[f"{name}_gain_spread"]
        apart = abs(facts[f"{name}_gain"] - facts["fitted_gain"])
        return apart > APART * spreads + 0.5 * facts["return_deviation"]

    sentence = (
        f"{title} puts the gain at {{{name}_gain:.4g}}, fitted Q evaluation at {{fitted_gain:.4g}}: "
        "they do not confirm each other"
    )
    return Rule(f"unconfirmed by {name}", holds, sentence)


def model_misses(facts: Facts) -> bool:
    return abs(facts["model_missed"]) > APART * facts["model_missed_spread"] + LOST * facts["episode_deviation"]


LEFT_OUT: dict[str, Rule] = {
    "fitted": Rule(
        "misses the log",
        lambda facts: abs(facts["missed"]) > (MISSED + NEGLIGIBLE) * facts["return_deviation"],
        "fitted Q evaluation is left out: it misses the log's own mean return, which is known, by {missed:+.3g}",
    ),
    "model": Rule(
        "does not know the log",
        model_misses,
        "the learned model is left out: in it the log's own episodes earn {model_missed:+.4g} beside what they did",
    ),
}
"""When an estimator does not know the log itself, whose returns are known: then nothing that it says is believed."""
SAYS = {"fitted": ("fitted_", "missed", "moved", "largest", "least"), "model": ("model_",)}
"""How the names of what an estimator says begin."""


def believed(facts: Facts) -> tuple[Facts, list[str]]:
    """The facts without those of estimators that do not know the log, and a sentence for each of these."""
    ignorant = [name for name, rule in LEFT_OUT.items() if rule.holds(facts)]
    dropped = tuple(start for name in ignorant for start in SAYS[name])
    kept = {name: fact for name, fact in facts.items() if not name.startswith(dropped)}
    return Facts(kept), [LEFT_OUT[name].sentence.format_map(facts) for name in ignorant]


RULES: list[Rule] = [
    Rule(
        "few episodes",
        lambda facts: facts["episodes"] < FEWEST_EPISODES,
        f"the log has {{episodes:.0f}} episodes; at least {FEWEST_EPISODES} are needed for an interval",
    ),
    Rule(
        "beyond the rewards",
        goes_beyond,
        "values from {least:.4g} to {largest:.4g} go beyond what the rewards allow, "
        "{lowest_possible:.4g} to {highest_possible:.4g}",
    ),
    Rule(
        "episode beyond the rewards",
        episode_goes_beyond,
        "a whole episode goes beyond what the log's rewards and its longest episode allow, "
        "{lowest_episode:.4g} to {highest_episode:.4g}",
    ),
    Rule(
        "still moving",
        still_moving,
        "the value was still moving at the end of training, by {moved:+.3g} in the last fifth",
    ),
    Rule(
        "knows the log",
        lambda facts: not any(f"{name}_gain" in facts for name in LEFT_OUT),
        "no estimator knows the log: nothing is left to build an interval of",
    ),
    Rule(
        "far from the log",
        lambda facts: facts["distance"] > FAR,
        "the policy acts {distance:.1f} of the log's deviations away from it: no data there",
    ),
    Rule(
        "far at times",
        lambda facts: facts["distance"] <= FAR and facts["reach"] > FAR_AT_TIMES,
        "in one state of ten the policy acts {reach:.1f} or more of the log's deviations away from it: no data there",
    ),
    Rule(
        "leaves the log",
        lambda facts: facts["model_share"] < FOLLOWED,
        "in a learned model the policy leaves what the log shows after {model_share:.0%} of the discounted time: "
        "nothing confirms the estimate",
    ),
    Rule(
        "ends early",
        ends_early,
        "in a learned model its whole episodes earn {model_episode:.4g}, those of the log {log_episode:.4g}: "
        "a discounted gain does not stand against that",
    ),
    *(unconfirmed(name, estimator.title) for name, estimator in ESTIMATORS.items() if name not in ALWAYS),
]


def doubts(facts: Facts) -> list[str]:
    """The sentences of all rules that hold."""
    return [rule.sentence.format_map(facts).replace("%", " %") for rule in RULES if rule.holds(facts)]
