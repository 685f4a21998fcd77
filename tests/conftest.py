"""Compiled programs are kept for the length of a test session: many tests train the same shapes."""

import tempfile

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def compilation_cache() -> object:
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        yield folder
