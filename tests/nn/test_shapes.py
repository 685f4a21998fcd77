"""The shapes that functions are annotated with are enforced while tests run (tests/conftest.py)."""

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from sbac.algorithms import evaluation
from sbac.nn import GaussianPolicy, mmd
from sbac.ratio import base
from tests.algorithms import harness


def test_a_wrong_shape_is_refused_in_every_room_that_is_checked() -> None:
    """Values of one column, of the algorithms, would broadcast to (batch, batch) without an error."""
    with pytest.raises(TypeCheckError, match="y"):
        mmd(jnp.zeros((4, 3, 2)), jnp.zeros((4, 5, 2)), "gaussian", 1.0)
    with pytest.raises(TypeCheckError, match="rows"):
        base.shares(jnp.zeros(3), jnp.zeros((4, 2)))
    with pytest.raises(TypeCheckError, match="td_target"):
        evaluation.td_target(harness.small_batch(), 0.9, jnp.zeros((6, 1)))


def test_shapes_are_checked_in_programs_too() -> None:
    policy = GaussianPolicy.create(jax.random.key(0), 3, (4,), 2)
    with pytest.raises(TypeCheckError, match="observations"):
        jax.jit(lambda x: policy(x))(jnp.zeros((5, 3), jnp.int32))
