"""A policy of every kind, with random networks."""

import numpy as np

from sbac.policy import Floats, Policy
from sbac.policy.committee import committee
from sbac.policy.formulas import COMMITTEE_OF

CONFIG = {"algorithm": "bc", "seed": 0, "label": "seed=0", "grid": []}
COMPONENTS, CANDIDATES = 4, 10


def network(rng: np.random.Generator, name: str, sizes: list[int], members: int | None = None) -> dict[str, Floats]:
    lead = () if members is None else (members,)
    arrays: dict[str, Floats] = {}
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
        arrays[f"{name}/weights/{i}"] = rng.normal(size=(*lead, inputs, outputs)) * np.sqrt(2 / inputs)
        arrays[f"{name}/biases/{i}"] = rng.normal(size=(*lead, outputs)) * 0.3
    return arrays


def make_policy(
    kind: str,
    observations: int = 5,
    actions: int = 3,
    hidden: tuple[int, ...] = (32, 32),
    normalise: bool = False,
    seed: int = 0,
) -> Policy:
    """With odd scales: means far from 0, bounds that are not symmetric."""
    if kind.startswith(COMMITTEE_OF):
        single = kind.removeprefix(COMMITTEE_OF)
        members = [make_policy(single, observations, actions, hidden, normalise, 2 * seed + i) for i in range(2)]
        for name in ("mean", "std"):  # each learned from another part of one log
            first, second = (member.arrays[f"scale/observation_{name}"] for member in members)
            second[:] = 1.1 * first
        return committee(members)
    rng = np.random.default_rng(seed)
    arrays: dict[str, Floats] = {
        "scale/observation_mean": rng.normal(size=observations) * 3,
        "scale/observation_std": np.exp(rng.normal(size=observations)),
        "scale/action_low": -1 - np.arange(actions) / 2,
        "scale/action_high": 1 + np.arange(actions) / 4,
    }

    def mlp(name: str, inputs: int, outputs: int, members: int | None = None) -> dict[str, Floats]:
        made = network(rng, name, [inputs, *hidden, outputs], members)
        return made | ({f"{name}/normalise": np.ones(())} if normalise else {})

    if kind in ("deterministic", "gaussian"):
        arrays |= mlp("policy", observations, actions) | {"log_std": np.zeros(actions)}
    elif kind == "tanh-mixture":
        arrays |= mlp("policy", observations, COMPONENTS * (1 + 2 * actions))
    elif kind == "tanh-mixture-per-dim":
        arrays |= mlp("policy", observations, 3 * actions * COMPONENTS)
    elif kind == "best-of-vae":
        codes = 2 * actions
        arrays |= mlp("decoder", observations + codes, actions) | mlp("perturbation", observations + actions, actions)
        arrays |= mlp("critic", observations + actions, 1, members=2)
        arrays |= {"codes": rng.normal(size=(CANDIDATES, codes)).clip(-0.5, 0.5), "size": np.asarray(0.05)}
    else:
        arrays |= mlp("policy", observations, 2 * actions)
    if kind == "best-of-gaussian":
        arrays |= mlp("critic", observations + actions, 1, members=5) | {"noise_limit": np.asarray(2.0)}
        arrays |= {"noise": rng.normal(size=(CANDIDATES, actions))}
    return Policy(kind, arrays, CONFIG)
