"""How much XLA optimises what a test compiles."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

SWITCH = "jax_disable_most_optimizations"


@contextmanager
def optimised(wanted: bool) -> Iterator[None]:
    """Programs compiled meanwhile are optimised, which pays for thousands of steps, or not, which pays for a few."""
    before = jax.config.values[SWITCH]
    jax.config.update(SWITCH, not wanted)
    try:
        yield
    finally:
        jax.config.update(SWITCH, before)
