"""States as named arrays and back: what a checkpoint holds."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbac.errors import UserError

Tree = Any


def leaf_names(tree: Tree) -> list[str]:
    """A name for every leaf, from its path."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


def tree_arrays(tree: Tree) -> dict[str, np.ndarray]:
    """The leaves by name, on the host."""
    return dict(zip(leaf_names(tree), map(np.asarray, jax.device_get(jax.tree.leaves(tree))), strict=True))


def fill_tree(shape: Tree, arrays: Mapping[str, np.ndarray], where: str) -> Tree:
    """A tree of the given structure with leaves from `arrays`, checked."""
    leaves: list[Any] = []
    for name, want in zip(leaf_names(shape), jax.tree.leaves(shape), strict=True):
        have = arrays.get(name)
        if have is None or have.shape != want.shape:
            raise UserError(f"{where}: {name} is {'missing' if have is None else have.shape}, expected {want.shape}")
        leaves.append(jnp.asarray(have, want.dtype))
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)
