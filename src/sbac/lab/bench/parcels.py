"""What travels between a bench and the nodes of a cluster: JSON, and arrays and files as safetensors bytes.

A bench sends the cells that one task trains, and their datasets apart, as several tasks may read the same one. A node
answers with the files of their cells and runs, or with the reason why it cannot train them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sbac.data import Dataset
from sbac.files import Arrays, pack_arrays, unpack_arrays
from sbac.lab.bench.plan import Cell
from sbac.lab.protocol import Protocol
from sbac.records import Json, as_json, parse

ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts", "action_low", "action_high")
LABELS = ("name", "kind", "task", "environment")


@dataclass(frozen=True)
class AskedCell:
    """A cell to train. `identity` tells its data from other data, `key` is its own: the node must find the same."""

    cell: Cell
    identity: str
    key: str


@dataclass(frozen=True)
class Asked:
    """The cells of one task, in one program, and how they are measured."""

    cells: list[AskedCell]
    protocol: Protocol
    workers: int | None
    evaluate: bool
    """Whether the last policies play their final episodes."""


@dataclass(frozen=True)
class Answered:
    """What a node made of a task, beside the files. `error`: why it cannot train at all."""

    node: str
    seconds: float
    error: str | None = None
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the keys of cells, why they cannot be trained."""


Files = dict[str, bytes]
"""What files hold, by their path in the results folder."""


def pack_asked(asked: Asked) -> bytes:
    return _pack(as_json(asked), {})


def unpack_asked(data: bytes) -> Asked:
    return parse(Asked, _unpack(data)[0], "task")


def pack_answer(answered: Answered, files: Files) -> bytes:
    return _pack(as_json(answered), {name: np.frombuffer(data, np.uint8) for name, data in files.items()})


def unpack_answer(data: bytes) -> tuple[Answered, Files]:
    fields, arrays = _unpack(data)
    return parse(Answered, fields, "answer"), {name: array.tobytes() for name, array in arrays.items()}


def pack_dataset(data: Dataset) -> bytes:
    names = [*ARRAYS, *(["next_observations"] if data.stores_next else [])]
    arrays = {name: np.asarray(getattr(data, name)) for name in names}
    return _pack({name: getattr(data, name) for name in LABELS}, arrays)


def unpack_dataset(data: bytes) -> Dataset:
    """The same dataset, with the same hash."""
    labels, arrays = _unpack(data)
    return Dataset(**arrays, **labels)


def _pack(fields: Mapping[str, Json], arrays: Arrays) -> bytes:
    return json.dumps(fields).encode() + b"\n" + (pack_arrays(arrays) if arrays else b"")


def _unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    line, _, rest = data.partition(b"\n")
    return json.loads(line), unpack_arrays(rest) if rest else {}
