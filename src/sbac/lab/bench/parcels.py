"""What travels between a bench and the nodes of a cluster: JSON, and arrays and files as safetensors bytes.

A bench sends the cells that one task trains, and their datasets apart, as several tasks may read the same one. A node
answers with the cells' records and the files of their runs, or with the reason why it cannot train them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sbac.data import Dataset
from sbac.errors import UserError
from sbac.files import Arrays, pack_arrays, unpack_arrays
from sbac.lab.bench.finding import Located
from sbac.lab.bench.plan import Cell
from sbac.lab.protocol import Protocol
from sbac.records import Json, as_json, parse

COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts")
BOUNDS = ("action_low", "action_high")


@dataclass(frozen=True)
class AskedCell:
    """A cell to train. `identity` tells its data from other data, `key` is its own: the node must find the same."""

    cell: Cell
    identity: str
    key: str
    has_data: bool

    @staticmethod
    def of(at: Located) -> "AskedCell":
        return AskedCell(at.cell, at.identity, at.key, at.data is not None)


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
    """What a node made of a task. `records`: its cells as their files have them; `error`: why it cannot train them."""

    node: str
    seconds: float
    records: list[Json] = field(default_factory=list[Json])
    error: str | None = None
    diverged: list[list[str]] = field(default_factory=list[list[str]])
    """For each cell the runs whose networks are no longer numbers."""


RunFiles = list[dict[str, bytes]]
"""For each cell the files of its run, by their name in its folder."""


def pack_asked(asked: Asked) -> bytes:
    return _pack(as_json(asked), {})


def unpack_asked(data: bytes) -> Asked:
    return parse(Asked, _unpack(data)[0], "task")


def pack_answer(answered: Answered, runs: Sequence[Mapping[str, bytes]] = ()) -> bytes:
    arrays = {f"{i}/{name}": np.frombuffer(data, np.uint8) for i, run in enumerate(runs) for name, data in run.items()}
    return _pack(as_json(answered), arrays)


def unpack_answer(data: bytes) -> tuple[Answered, RunFiles]:
    fields, arrays = _unpack(data)
    answered = parse(Answered, fields, "answer")
    runs: RunFiles = [{} for _ in answered.records]
    for path, array in arrays.items():
        number, _, name = path.partition("/")
        if not (number.isdigit() and int(number) < len(runs)):
            raise UserError(f"answer: file {path!r} belongs to none of its {len(runs)} cells")
        runs[int(number)][name] = array.tobytes()
    return answered, runs


@dataclass(frozen=True)
class DatasetLabels:
    """What a dataset has beside its arrays."""

    name: str
    kind: str
    task: str | None = None
    environment: str | None = None


def pack_dataset(data: Dataset) -> bytes:
    names = [*COLUMNS, *BOUNDS, *(["next_observations"] if data.stores_next else [])]
    arrays = {name: np.asarray(getattr(data, name)) for name in names}
    return _pack(as_json(DatasetLabels(data.name, data.kind, data.task, data.environment)), arrays)


def unpack_dataset(data: bytes) -> Dataset:
    """The same dataset, with the same hash."""
    fields, arrays = _unpack(data)
    labels = parse(DatasetLabels, fields, "dataset")
    return Dataset(
        *(arrays[name] for name in COLUMNS),
        next_observations=arrays.get("next_observations"),
        action_low=arrays["action_low"],
        action_high=arrays["action_high"],
        name=labels.name,
        kind=labels.kind,
        task=labels.task,
        environment=labels.environment,
    )


def _pack(fields: Mapping[str, Json], arrays: Arrays) -> bytes:
    return json.dumps(fields).encode() + b"\n" + (pack_arrays(arrays) if arrays else b"")


def _unpack(data: bytes) -> tuple[object, Arrays]:
    line, _, rest = data.partition(b"\n")
    return json.loads(line), unpack_arrays(rest) if rest else {}
