"""The data that a group of runs learns from, as the device holds them."""

from typing import NamedTuple

import numpy as np

from sbac.algorithms.base import Algorithm
from sbac.config import Config
from sbac.data import Dataset
from sbac.data.dataset import Flags
from sbac.data.streaming import StreamedLog
from sbac.training.stream import Stream
from sbac.training.table import Scaling, Table, build_table

SAMPLE_STATES = 1000


class DeviceData(NamedTuple):
    """A dataset for training, its held-out part for validation, a sample of its states, and how it was scaled."""

    table: Table
    validation: Table | None
    states: np.ndarray
    scaling: Scaling
    stream: Stream | None = None
    """Where the table is a part of a log, which changes while training goes on."""

    @classmethod
    def streamed(cls, method: Algorithm, log: StreamedLog, config: Config, step: int) -> "DeviceData":
        """A log that is read in blocks, as it stands at a step, counted over all phases. It has no validation part."""
        stream = Stream(log, config)
        table = stream.table(step)
        for phase in method.phases:
            table.require(phase.needs, log.name)
        return cls(table, None, stream.states, stream.scaling, stream)

    @classmethod
    def of(cls, method: Algorithm, data: Dataset, config: Config) -> "DeviceData":
        """Scales and packs the data. Refuses data that a phase of the method cannot learn from."""
        training, held_out = halves(method, data, config.validation)
        scaling = Scaling.of(data, config, training)
        table = build_table(data, scaling, training)
        for phase in method.phases:
            table.require(phase.needs, data.name)
        validation = None if held_out is None else build_table(data, scaling, held_out)
        numbers = np.arange(len(data)) if training is None else np.flatnonzero(training)
        rows = numbers[np.linspace(0, len(numbers) - 1, SAMPLE_STATES).astype(int)]  # some twice, if there are fewer
        return cls(table, validation, scaling.states(data.observations[rows]), scaling)


def halves(method: Algorithm, data: Dataset, share: float) -> tuple[Flags | None, Flags | None]:
    """The rows for training (None: all) and those for validation. None for the latter if there are none, or if they
    lack what a phase needs."""
    held_out = data.held_out_rows(share)
    if held_out is None:
        return None, None
    usable = (data.has_next | data.terminals) & held_out
    rows = {"row": True, "next_state": usable.any(), "next_action": (usable & data.has_next_action).any()}
    return (~held_out, held_out) if all(rows[phase.needs] for phase in method.phases) else (None, None)
