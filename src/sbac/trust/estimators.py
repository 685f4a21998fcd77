"""The estimators: each is one file, with a function from a question to its evidence on every policy, and one line."""

from collections.abc import Callable
from typing import NamedTuple

from sbac.trust import behaviour, fitting, model
from sbac.trust.evidence import Evidence, Question


class Estimator(NamedTuple):
    title: str
    """What a sentence calls it."""
    evidence: Callable[[Question], list[Evidence]]


ESTIMATORS = {
    "fitted": Estimator("fitted Q evaluation", fitting.evidence),
    "behaviour": Estimator("the clone of the log", behaviour.evidence),
    "model": Estimator("the learned model", model.evidence),
}
ALWAYS = ("fitted", "behaviour")
"""Asked in every case. The interval is built around the learned model where it is asked, else around the first; the
second knows the distance from the log."""
BESIDE = ("model",)
"""Asked besides, unless others are named."""
