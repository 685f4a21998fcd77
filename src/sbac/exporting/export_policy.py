"""`sbac.export`: a policy as a file for other software, checked against the policy itself before it is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbac import files
from sbac.errors import UserError, name_of, path_of, unknown
from sbac.policy import Floats, Policy

FORMATS = {".onnx": "onnx", ".stablehlo": "stablehlo"}
"""The format that the ending of a file's name stands for."""
TOLERANCE = 1e-5
"""The greatest distance of a program's action from numpy's."""
CHECKED, PERTURBED = 256, 4
"""Observations in the check, drawn around the mean of the data, and how often each is moved a little."""


def export(policy: Policy, path: str | Path, format: str | None = None) -> None:
    """Writes a policy as a program from "observations" (n, obs) to "actions" (n, act), float32, any n.

    The scaling of observations and the bounds of actions are inside. The program gives what `policy(observations)`
    gives, the deterministic action, and is compared with it before the file is written.

    policy: what to export; every kind of policy of this package.
    path: the file.
    format: "onnx" or "stablehlo"; None: what the ending of the path says.
    """
    path, policy = path_of("path", path), _policy(policy)
    wanted = FORMATS.get(path.suffix) if format is None else name_of("format", format)
    if wanted is None:
        raise UserError(f"{path}: of which format? expected a name that ends with {' or '.join(FORMATS)}")
    if wanted not in FORMATS.values():
        raise unknown("format", wanted, FORMATS.values())
    data, run = program(policy, wanted)
    if run is not None:
        found = compare(policy, run)
        if not found.holds:
            raise UserError(f"the exported program differs from the policy by {found.distances.max():.2g}; not written")
    files.write_atomic(path, data)


def _policy(value: object) -> Policy:
    if not isinstance(value, Policy):
        raise UserError(f"policy {value!r}: expected a Policy; Policy.load reads one from a file")
    return value


def program(policy: Policy, format: str) -> tuple[bytes, Callable[[Floats], Floats] | None]:
    """The file's content, and a function that runs it (None: what runs it is not installed)."""
    if not policy.is_finite:
        raise UserError("the policy holds numbers that are not finite: its training has diverged")
    if format == "stablehlo":
        from sbac.exporting.stablehlo_file import stablehlo_bytes, stablehlo_runner

        data = stablehlo_bytes(policy)
        return data, stablehlo_runner(data)
    from sbac.exporting.onnx_file import onnx_bytes, onnx_runner

    data = onnx_bytes(policy)
    return data, onnx_runner(data)


@dataclass(frozen=True)
class Agreement:
    """How far a program's actions are from the policy's, in each row of the check, and how far they may be.

    Wherever `limit` is above `TOLERANCE`, rounding alone moves numpy's own action that far.
    """

    distances: Floats
    limits: Floats

    @property
    def holds(self) -> bool:
        return bool((self.distances <= self.limits).all())


def compare(policy: Policy, run: Callable[[Floats], Floats], rows: int = CHECKED, seed: int = 0) -> Agreement:
    """Compares a program with the policy, for one observation and for many.

    A policy that chooses among candidates may choose either of two that are equally good up to rounding. So the limit
    is TOLERANCE, or three times what numpy's own action moves by when the observation moves by a millionth of its
    deviation, where that is more. Distances count in units of half the range of actions where that is above 1.
    """
    rng = np.random.default_rng(seed)
    mean, std = policy.arrays["scale/observation_mean"], policy.arrays["scale/observation_std"]
    unit = np.maximum(1.0, 0.5 * (policy.arrays["scale/action_high"] - policy.arrays["scale/action_low"]))
    observations = (mean + std * rng.standard_normal((rows, len(mean)))).astype(np.float32)
    expected = policy(observations)

    def distance(actions: Floats) -> Floats:
        return (np.abs(actions - expected[: len(actions)]) / unit).max(-1)

    moved = [observations + 1e-6 * std * rng.standard_normal(observations.shape) for _ in range(PERTURBED)]
    limits = np.maximum(TOLERANCE, 3 * np.max([distance(policy(nearby)) for nearby in moved], axis=0))
    alone, together = run(observations[:1]), run(observations)
    if alone.shape != expected[:1].shape or together.shape != expected.shape:
        raise UserError(f"the exported program gives actions of shape {together.shape}; expected {expected.shape}")
    distances = distance(together)
    distances[0] = max(distances[0], distance(alone)[0])
    return Agreement(distances, limits)
