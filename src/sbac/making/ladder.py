"""Ladders: the policies along one training run, in half precision, in one small file."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.errors import UserError
from sbac.files import read_safetensors
from sbac.policy import Floats

FORMAT = 1


@dataclasses.dataclass
class Rung:
    """A policy along training: the environment steps it was trained with, and returns of whole episodes."""

    step: int
    arrays: dict[str, NDArray[np.float16]]
    mode: list[float] = dataclasses.field(default_factory=list[float])
    sampled: list[float] = dataclasses.field(default_factory=list[float])

    def policy(self) -> dict[str, Floats]:
        """The arrays in the precision with which the policy acts."""
        return {k: v.astype(np.float32) for k, v in self.arrays.items()}


@dataclasses.dataclass
class Ladder:
    """One training run's policies, in the order of their steps. `about` describes the training."""

    environment: str
    kind: str
    rungs: list[Rung]
    about: dict[str, Any]


def shipped(name: str) -> Path:
    """The ladder that comes with the package: "hopper", or "hopper-td3", its second one."""
    return Path(__file__).parent / "ladders" / f"{name}.safetensors"


def ladder_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_ladders(path: str | Path) -> list[Ladder]:
    tensors, meta = read_safetensors(Path(path), "ladder file")
    header = json.loads(meta.get("sbac-ladders", "{}"))
    if header.get("format") != FORMAT:
        raise UserError(f"{path}: not a ladder file of this version of sbac")
    ladders: list[Ladder] = []
    for i, head in enumerate(header["ladders"]):
        prefix = f"{i}/"
        stacked = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        rungs = [
            Rung(step, {k: v[j] for k, v in stacked.items()}, head["mode"][j], head["sampled"][j])
            for j, step in enumerate(head["steps"])
        ]
        ladders.append(Ladder(head["environment"], head["kind"], rungs, head["about"]))
    return ladders
