"""Every method learns the small problem: the mean score over its seeds lies in its band."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.algorithms import harness, problem

SMALL: dict[str, Any] = {"hidden": (32, 32), "batch_size": 64, "target_rate": 0.02}
"""Networks and targets for a few thousand steps."""


def rates(value: float, *parts: str) -> dict[str, Any]:
    return {f"{part}_learning_rate": value for part in parts}


class Case(NamedTuple):
    steps: tuple[int, ...]
    fields: dict[str, Any]
    seeds: int = 2


ACTOR_CRITIC = rates(1e-3, "policy") | rates(2e-3, "critic")
ONE_STEP = {"alpha": 0.05, "samples": 4, "learning_rate": 2e-3, **SMALL}
SBAC = {**SMALL, "alpha": 0.02, "ratio_hidden": (32, 32), **ACTOR_CRITIC}
# What an action changes is a few tenths here, where it is tens in the published tasks.
BRAC: dict[str, Any] = {f"{part}_hidden": (32, 32) for part in ("clone", "policy", "critic")}
BRAC |= {"batch_size": 64, "target_rate": 0.02, "alpha": 0.03, **ACTOR_CRITIC, **rates(2e-3, "clone")}
# Bounds for such values: the published ones flatten Q altogether here.
BRAC_PLUS = {**SMALL, "members": 2, "codes": 1, "alpha": 0.1, "entropy_weight": 0.1, "gradient_penalty": 1e-3}
BRAC_PLUS |= {"gradient_limit": 1.0, **rates(5e-4, "policy"), **rates(2e-3, "critic"), **rates(1e-4, "multiplier")}
ALGAE_DICE = Case((4000,), {**SMALL, **rates(2e-3, "critic")})

QUICK: dict[str, Case] = {
    "bc": Case((2000,), {}),
    "sbac": Case((3000, 1500), SBAC),
}
SLOW: dict[str, Case] = {
    # The published alpha of 2.5 is for returns that differ more, relative to their size. Seeds spread by 4 points.
    "td3-bc": Case((4000,), {**SMALL, "alpha": 10.0, "learning_rate": 2e-3}, seeds=6),
    "sbac-no-w": Case((3000, 1500), SBAC),
    "sbac-q-pi": Case((3000, 1500), SBAC, seeds=8),  # they spread by 4 points around 90, and the band begins at 85
    **{
        f"one-step {kind}": Case((3000, 1500), ONE_STEP | {"behaviour": kind})
        for kind in ("gaussian", "mixture-per-dim", "mixture")
    },
    # Seeds spread by 3 points around 94, and the band begins at 90.
    "bcq": Case((4000,), {**SMALL, "vae_hidden": (32, 32), "learning_rate": 2e-3, "acting_candidates": 100}, seeds=4),
    "bear": Case(
        (3000,),
        {
            **SMALL,
            "vae_hidden": (32, 32),
            **rates(1e-3, "actor"),
            **rates(2e-3, "critic", "vae"),
            **rates(5e-3, "dual"),
        },
    ),
    "brac-p": Case((1500, 3000), BRAC),
    "brac-v": Case((1500, 3000), BRAC),
    # One seed of twelve may end at 45 to 48: means of 89.7 for alpha(s) and 89.4 for the scalar.
    "brac-plus state": Case((1000, 1000, 3000), BRAC_PLUS | {"multiplier": "state", **rates(3e-3, "dual")}, seeds=12),
    "brac-plus scalar": Case((1000, 1000, 3000), BRAC_PLUS | {"multiplier": "scalar", **rates(1e-3, "dual")}, seeds=12),
    "algae-dice": ALGAE_DICE,
    # Values differ by less than 1: a weight of 5 would leave only the penalty.
    "cql": Case((1500,), {**SMALL, "alpha": 1.0, **ACTOR_CRITIC}),
    # Without the bonus of 5, which is ten times a step's reward and takes a critic long to learn.
    "fisher-brc": Case(
        (1500, 3000), {**SMALL, "clone_hidden": (32, 32), "reward_bonus": 0.0, **ACTOR_CRITIC, **rates(2e-3, "clone")}
    ),
    "iql": Case((1500,), {**SMALL, "expectile": 0.9, "temperature": 10.0, "learning_rate": 2e-3}),
    "rebrac": Case((2500,), {**SMALL, "learning_rate": 2e-3}),
}


def scores(name: str, case: Case, **changes: Any) -> list[float]:
    """Percent of optimal of every seed."""
    policies = harness.train(name, steps=case.steps, seeds=case.seeds, **case.fields, **changes)[1]
    return [problem.score(lambda s, p=p: p(s).astype(float)) for p in policies]


@pytest.mark.parametrize("named", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_learns_the_small_problem(named: str) -> None:
    name = named.split()[0]
    achieved, band = scores(name, (QUICK | SLOW)[named]), problem.BANDS[name]
    assert band.low <= np.mean(achieved) <= band.high, f"{achieved}, expected {band}"


def test_every_method_has_its_case() -> None:
    assert {name.split()[0] for name in (*QUICK, *SLOW)} == problem.BANDS.keys()


@pytest.mark.slow
def test_an_entropy_bonus_with_a_target_of_minus_one_makes_algae_dice_end_its_episodes() -> None:
    """A known failure, kept in sight: near its target the bonus is a cost of `temperature` for every step lived."""
    published = {"temperature": 1.0, "temperature_learning_rate": 1e-3}
    assert np.mean(scores("algae-dice", ALGAE_DICE, **published)) < 0
