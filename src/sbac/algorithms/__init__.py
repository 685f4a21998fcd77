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
    "sac": "sac:SAC",
    "td3": "td3:TD3",
    "bcq": "bcq:BCQ",
    "bear": "bear:BEAR",
    "brac-p": "brac:BRAC_P",
    "brac-v": "brac:BRAC_V",
    "brac-plus": "brac_plus:BRAC_PLUS",
    "algae-dice": "algae_dice:ALGAE_DICE",
    "fisher-brc": "fisher_brc:FISHER_BRC",
    "one-step": "one_step:ONE_STEP",
    "cql": "cql:CQL",
    "td3-bc": "td3_bc:TD3_BC",
    "iql": "iql:IQL",
    "rebrac": "rebrac:REBRAC",
}


def find(name: str) -> "Algorithm":
    """The algorithm of that name."""
    if name not in REGISTRY:
        raise unknown("algorithm", name, REGISTRY)
    module, attribute = REGISTRY[name].split(":")
    return getattr(importlib.import_module(f"sbac.algorithms.{module}"), attribute)
