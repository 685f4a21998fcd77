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
from sbac.records import Json, Record, as_json, parse

ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts", "action_low", "action_high")
LABELS = ("name", "kind", "task", "environment")


@dataclass(frozen=True)
class Asked:
    """The cells of one task, in one program, and how they are measured."""

    cells: list[Cell]
    keys: list[str]
    """Of the cells: the node must find the same."""
    protocol: Protocol
    workers: int | None
    evaluate: bool
    """Whether the last policies play their final episodes."""


@dataclass(frozen=True)
class Answered:
    """What a node made of a task, beside the files. `error`: why it cannot train at all."""

    node: str = ""
    seconds: float = 0.0
    error: str | None = None
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the keys of cells, why they cannot be trained."""


Files = dict[str, bytes]
"""What files hold, by their path in the results folder."""


def pack(record: Asked | Answered, files: Files | None = None) -> bytes:
    return _pack(as_json(record), {name: np.frombuffer(data, np.uint8) for name, data in (files or {}).items()})


def unpack(record: type[Record], data: bytes) -> tuple[Record, Files]:
    fields, arrays = _unpack(data)
    return parse(record, fields, record.__name__.lower()), {name: array.tobytes() for name, array in arrays.items()}


def pack_dataset(data: Dataset, identity: str) -> bytes:
    """A dataset, and what tells it from other data."""
    names = [*ARRAYS, *(["next_observations"] if data.stores_next else [])]
    labels = {name: getattr(data, name) for name in LABELS}
    return _pack({"identity": identity, "labels": labels}, {name: np.asarray(getattr(data, name)) for name in names})


def unpack_dataset(packed: bytes) -> tuple[Dataset, str]:
    """The same dataset, with the same hash, and its identity."""
    fields, arrays = _unpack(packed)
    return Dataset(**arrays, **fields["labels"]), fields["identity"]


def _pack(fields: Mapping[str, Json], arrays: Arrays) -> bytes:
    return json.dumps(fields).encode() + b"\n" + (pack_arrays(arrays) if arrays else b"")


def _unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    line, _, rest = data.partition(b"\n")
    return json.loads(line), unpack_arrays(rest) if rest else {}
