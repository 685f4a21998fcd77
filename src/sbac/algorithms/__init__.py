"""The registry: a method is one file and one line below."""

import importlib
from typing import TYPE_CHECKING

from sbac.errors import unknown

if TYPE_CHECKING:
    from sbac.algorithms.base import Algorithm

# A method's name, its module and the `Algorithm` in it. The order is that of a table's columns: SBAC and its ablations,
# what a user would pick today, the paper's other rivals, and last the methods that learn in an environment.
REGISTRY = {
    "sbac": "sbac.algorithms.sbac:SBAC",
    "sbac-no-w": "sbac.algorithms.sbac:SBAC_NO_W",
    "sbac-q-pi": "sbac.algorithms.sbac:SBAC_Q_PI",
    "one-step": "sbac.algorithms.one_step:ONE_STEP",
    "bc": "sbac.algorithms.bc:BC",
    "td3-bc": "sbac.algorithms.td3_bc:TD3_BC",
    "iql": "sbac.algorithms.iql:IQL",
    "rebrac": "sbac.algorithms.rebrac:REBRAC",
    "cql": "sbac.algorithms.cql:CQL",
    "fisher-brc": "sbac.algorithms.fisher_brc:FISHER_BRC",
    "brac-v": "sbac.algorithms.brac:BRAC_V",
    "brac-p": "sbac.algorithms.brac:BRAC_P",
    "brac-plus": "sbac.algorithms.brac_plus:BRAC_PLUS",
    "bear": "sbac.algorithms.bear:BEAR",
    "bcq": "sbac.algorithms.bcq:BCQ",
    "algae-dice": "sbac.algorithms.algae_dice:ALGAE_DICE",
    "sac": "sbac.algorithms.sac:SAC",
    "td3": "sbac.algorithms.td3:TD3",
}


def find(name: str) -> "Algorithm":
    if name not in REGISTRY:
        raise unknown("algorithm", name, REGISTRY)
    return getattr(importlib.import_module(module_of(name)), REGISTRY[name].partition(":")[2])


def module_of(name: str) -> str:
    return REGISTRY[name].partition(":")[0]
