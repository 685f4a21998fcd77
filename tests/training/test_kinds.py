"""Kinds of one method in one grid: lists of names, and settings that are no product."""

from typing import Any

import pytest

from sbac.algorithms import find
from sbac.errors import UserError
from sbac.training.grid import groups
from sbac.training.request import Grid


def labels(grid: Grid) -> list[str]:
    return [run.label for run in grid.members(find("sbac"))]


def test_a_list_of_names_is_a_grid() -> None:
    runs = Grid(seeds=2, options={"critic": ["mu", "pi"], "alpha": [0.25, 1.0]}).members(find("sbac"))
    assert [run.label for run in runs][:5] == [
        *(f"critic=mu_alpha={alpha}_seed={seed}" for alpha in ("0.25", "1") for seed in (0, 1)),
        "critic=pi_alpha=0.25_seed=0",
    ]
    assert [run.config.critic for run in runs] == ["mu"] * 4 + ["pi"] * 4
    assert groups(runs) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(UserError, match="unknown critic 'nu'"):
        labels(Grid(options={"critic": ["mu", "nu"]}))
    with pytest.raises(UserError, match="each of them once"):
        labels(Grid(options={"critic": ["mu", "mu"]}))


def test_settings_are_trained_with_every_seed_and_every_combination_of_the_lists() -> None:
    settings: list[dict[str, Any]] = [{"critic": "mu", "alpha": 1.0}, {"critic": "pi", "alpha": 0.25}]
    assert labels(Grid(seeds=2, settings=settings)) == [
        "critic=mu_alpha=1_seed=0",
        "critic=mu_alpha=1_seed=1",
        "critic=pi_alpha=0.25_seed=0",
        "critic=pi_alpha=0.25_seed=1",
    ]
    assert labels(Grid(settings=settings, options={"discount": [0.9, 0.99]})) == [
        "critic=mu_alpha=1_discount=0.9_seed=0",
        "critic=mu_alpha=1_discount=0.99_seed=0",
        "critic=pi_alpha=0.25_discount=0.9_seed=0",
        "critic=pi_alpha=0.25_discount=0.99_seed=0",
    ]


def test_a_setting_takes_the_usual_value_of_an_option_that_only_another_names() -> None:
    grid = Grid(settings=[{"alpha": 2.0}, {"critic": "pi"}, {"hidden": (8, 8)}], options={"tau": 0.9})
    assert labels(grid) == [
        "alpha=2_critic=mu_hidden=64x64_seed=0",
        "alpha=1_critic=pi_hidden=64x64_seed=0",
        "alpha=1_critic=mu_hidden=8x8_seed=0",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "settings: expected at least one"),
        ("mu", "settings 'mu': expected a list"),
        (["mu"], r"settings\[0\]: expected names with values, got str"),
        ([{"critic": "mu"}, {"critic": "mu"}], "each of them once"),
        ([{"critic": "mu"}, {}], "each of them once"),
        ([{"kritik": "mu"}], "unknown option of sbac 'kritik'"),
        ([{"critic": ["mu", "pi"]}], "unknown critic"),
        ([{"alpha": [1.0, 2.0]}], "alpha .*: expected a number"),
        ([{"alpha": -1.0}], "alpha -1.0: expected a number"),
        ([{"steps": 3}], r"settings\[0\]: steps is one for all settings"),
        ([{"tau": 0.6}], r"settings\[0\]: tau is one for all settings"),
        ([{"alpha": float(i)} for i in range(6_000)], "12,000 runs in one launch"),
    ],
)
def test_settings_that_cannot_be(settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        labels(Grid(seeds=2, settings=settings, options={"tau": 0.9}))
    assert "\n" not in str(raised.value)
