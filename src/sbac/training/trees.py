"""A checkpoint's content: a state as named arrays, and back."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbac.errors import UserError
from sbac.nn import Tree
from sbac.nn.typed import leaf_names


def tree_arrays(tree: Tree) -> dict[str, np.ndarray]:
    """The leaves by name, on the host."""
    return dict(zip(leaf_names(tree), map(np.asarray, jax.device_get(jax.tree.leaves(tree))), strict=True))


def fill_tree(shape: Tree, arrays: Mapping[str, np.ndarray], where: str) -> Tree:
    """A tree of the given structure with leaves from `arrays`, checked."""
    leaves: list[Array] = []
    for name, want in zip(leaf_names(shape), jax.tree.leaves(shape), strict=True):
        have = arrays.get(name)
        if have is None or have.shape != want.shape:
            raise UserError(f"{where}: {name} is {'missing' if have is None else have.shape}, expected {want.shape}")
        leaves.append(jnp.asarray(have, want.dtype))
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)
