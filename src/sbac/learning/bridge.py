"""What other parts of the package are about to offer, under the names that they will have. To be removed then."""

import importlib
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from sbac.data import Dataset
from sbac.errors import UserError
from sbac.trust.choosing import CandidateRecord, Choice, select


class EpisodeGain(NamedTuple):
    """What a policy gains over the log in an episode, undiscounted, with its 90 % interval."""

    gain: float
    low: float
    high: float


def misleading(data: Dataset) -> list[str]:
    """What in the log may mislead."""
    try:
        module: Any = importlib.import_module("sbac.data.misleading")
    except ModuleNotFoundError:
        return []
    return module.misleading(data)


def select_options(ends: str | None, watch: Sequence[str]) -> dict[str, Any]:
    """What `sbac.select` is asked about ends and watched columns."""
    asked = {name: value for name, value in {"ends": ends, "watch": list(watch)}.items() if value}
    for name in asked.keys() - inspect.signature(select).parameters.keys():
        raise UserError(f"{name}: not an option of this version")
    return asked


def promise_of(choice: Choice, row: CandidateRecord) -> EpisodeGain | None:
    """Of a candidate, where something can be promised."""
    if row.label == choice.label and hasattr(choice, "promise"):
        promise: Any = getattr(choice, "promise")  # noqa: B009 (not an attribute yet)
        return None if promise is None else EpisodeGain(promise.gain, promise.low, promise.high)
    if row.episode is None or row.episode_low is None or row.episode_high is None:
        return None
    log = choice.record.log.episode
    return EpisodeGain(row.episode - log, row.episode_low - log, row.episode_high - log)


def watched_of(choice: Choice) -> list[Any]:
    return list(getattr(choice, "watched", []))
