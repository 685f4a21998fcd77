"""The registry: a method is one file here and one line below."""

import importlib
from typing import TYPE_CHECKING

from sbac.errors import unknown

if TYPE_CHECKING:
    from sbac.algorithms.base import Algorithm

REGISTRY = {
    "bc": "bc:BC",
    "sbac": "sbac:SBAC",
    "sbac-no-w": "sbac:SBAC_NO_W",
    "sbac-q-pi": "sbac:SBAC_Q_PI",
}


def find(name: str) -> "Algorithm":
    """The algorithm of that name."""
    if name not in REGISTRY:
        raise unknown("algorithm", name, REGISTRY)
    module, attribute = REGISTRY[name].split(":")
    return getattr(importlib.import_module(f"sbac.algorithms.{module}"), attribute)
