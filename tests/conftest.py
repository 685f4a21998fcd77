"""Shapes are checked, and compiled programs are kept for the length of a test session: many tests train the same ones.

The annotations `Float[Array, "batch obs"]` of the networks, the ratio and the algorithms are enforced in every test:
jaxtyping's import hook has beartype check the arguments and results of all their functions. It must be installed
before any of these modules is imported. The checks run when a program is traced and cost nothing in it.
"""

import tempfile

import jax
import pytest
from jaxtyping import install_import_hook

CHECKED = ("sbac.nn", "sbac.ratio", "sbac.algorithms")
install_import_hook(CHECKED, "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def compilation_cache() -> object:
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        yield folder
