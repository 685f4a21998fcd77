"""The data that a group of runs learns from, as the device holds them."""

from typing import NamedTuple

import numpy as np

from sbac.algorithms.base import Algorithm
from sbac.config import Config
from sbac.data import Dataset
from sbac.training.table import Scaling, Table, build_table

SAMPLE_STATES = 1000


class DeviceData(NamedTuple):
    """A dataset for training, its held-out part for validation, a sample of its states, and how it was scaled."""

    table: Table
    validation: Table | None
    states: np.ndarray
    scaling: Scaling

    @classmethod
    def of(cls, method: Algorithm, data: Dataset, config: Config) -> "DeviceData":
        """Scales and packs the data. Refuses data that a phase of the method cannot learn from."""
        training, held_out = halves(method, data, config.validation)
        scaling = Scaling.of(training, config)
        table = build_table(training, scaling)
        for phase in method.phases:
            table.require(phase.needs, data.name)
        validation = None if held_out is None else build_table(held_out, scaling)
        rows = np.linspace(0, len(training) - 1, SAMPLE_STATES).astype(int)  # some twice, if there are fewer
        return cls(table, validation, scaling.states(training.observations[rows]), scaling)


def halves(method: Algorithm, data: Dataset, share: float) -> tuple[Dataset, Dataset | None]:
    """The episodes for training and those for validation. None for the latter if they lack rows that a phase needs."""
    training, held_out = data.split(share)
    if held_out is None:
        return training, None
    known = held_out.has_next | held_out.terminals
    rows = {"row": True, "next_state": known.any(), "next_action": (known & held_out.has_next_action).any()}
    return (training, held_out) if all(rows[phase.needs] for phase in method.phases) else (data, None)
