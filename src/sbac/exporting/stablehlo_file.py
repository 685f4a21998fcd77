"""A policy as the bytes of a StableHLO program, written and read by `jax.export`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np
from jaxtyping import Array

from sbac.errors import UserError
from sbac.policy import Floats, Policy
from sbac.policy.formulas import act

PLATFORMS = ("cpu", "cuda")
_jax: Any = jax  # which annotates `jit` in part


def stablehlo_bytes(policy: Policy) -> bytes:
    """The file's content, for any number of observations, on a CPU or an NVIDIA GPU."""

    def actions(observations: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return act(policy.kind, policy.arrays, observations)

    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape(f"n, {policy.observation_size}"), np.float32)
    exported: Any = jax.export.export(_jax.jit(actions), platforms=PLATFORMS)(shape)
    try:
        return bytes(exported.serialize())
    except ImportError:
        raise UserError("--format stablehlo needs the package flatbuffers: pip install 'sbac[export]'") from None


def stablehlo_runner(data: bytes) -> Callable[[Floats], Floats]:
    """A function that runs the file."""
    program: Any = jax.export.deserialize(bytearray(data))
    call = _jax.jit(program.call)
    return lambda observations: np.asarray(call(observations))
