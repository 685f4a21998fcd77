"""Kinds of one method in one grid: lists of names, settings that are no product, a phase trained once for several."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small import contents, make_log

import sbac
from sbac.algorithms import find
from sbac.errors import UserError
from sbac.training.engine import Program
from sbac.training.folder import Folder
from sbac.training.grid import groups
from sbac.training.open_run import Lead, OpenRun, take_up
from sbac.training.request import Grid, OfflineRequest
from sbac.training.sharing import with_leaders
from sbac.training.writer import Writer


def labels(grid: Grid) -> list[str]:
    return [run.label for run in grid.members(find("sbac"))]


def test_a_list_of_names_is_a_grid() -> None:
    runs = Grid(seeds=2, options={"critic": ["mu", "pi"], "alpha": [0.25, 1.0]}).members(find("sbac"))
    assert [run.label for run in runs][:5] == [
        *(f"critic=mu_alpha={alpha}_seed={seed}" for alpha in ("0.25", "1") for seed in (0, 1)),
        "critic=pi_alpha=0.25_seed=0",
    ]
    assert [run.config.critic for run in runs] == ["mu"] * 4 + ["pi"] * 4  # type: ignore
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
    grid = Grid(settings=[{"alpha": 2.0}, {"critic": "mu"}, {"hidden": (8, 8)}], options={"tau": 0.9})
    assert labels(grid) == [
        "alpha=2_critic=pi_hidden=64x64_seed=0",
        "alpha=1_critic=mu_hidden=64x64_seed=0",
        "alpha=1_critic=pi_hidden=8x8_seed=0",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "settings: expected at least one"),
        ("mu", "settings 'mu': expected a list"),
        (["mu"], r"settings\[0\]: expected names with values, got str"),
        ([{"critic": "mu"}, {"critic": "mu"}], "each of them once"),
        ([{"critic": "pi"}, {}], "each of them once"),
        ([{"kritik": "mu"}], "unknown option of sbac 'kritik'"),
        ([{"critic": ["mu", "pi"]}], "unknown critic"),
        ([{"alpha": [1.0, 2.0]}], "alpha .*: expected a number"),
        ([{"alpha": -1.0}], "alpha -1.0: expected a number"),
        ([{"steps": 3}], r"settings\[0\]: steps is one for all settings"),
        ([{"tau": 0.6}], r"settings\[0\]: tau is one for all settings"),
        ([{"alpha": float(i)} for i in range(6_000)], "12,000 policies in one run"),
    ],
)
def test_settings_that_cannot_be(settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        labels(Grid(seeds=2, settings=settings, options={"tau": 0.9}))
    assert "\n" not in str(raised.value)


# --- A phase that is the same for several kinds ---------------------------------------------------------------------

SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 16, "steps": 20, "seeds": 2, "evaluate": False}
SETTINGS: list[dict[str, Any]] = [{"critic": "mu", "alpha": 1.0}, {"critic": "pi", "alpha": 0.25}]


def train(out: Path, **options: Any) -> sbac.Run:
    return sbac.train(make_log(600, 50), "sbac", out=out, progress=False, **SMALL | options)


def count_steps(patch: pytest.MonkeyPatch) -> Counter[int]:
    """The steps that each phase trains from now on."""
    counted: Counter[int] = Counter()
    real = Program.advance

    def advance(self: Program, phase: int, inputs: Any, state: Any, start: int, stop: int, block: int = 1) -> Any:
        counted[phase] += stop - start
        return real(self, phase, inputs, state, start, stop, block)

    patch.setattr(Program, "advance", advance)
    return counted


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mu and pi share is trained once."""
    folder = tmp_path_factory.mktemp("joint") / "run"
    with pytest.MonkeyPatch.context() as patch:
        steps = count_steps(patch)
        train(folder, settings=SETTINGS)
    assert steps == {0: 20, 1: 2 * 20}
    return folder


def test_every_policy_is_that_of_a_run_of_its_own(joint: Path, tmp_path: Path) -> None:
    policies = {policy.config["label"]: policy for policy in sbac.Run.load(joint).policies}
    for setting in SETTINGS:
        for alone in train(tmp_path / setting["critic"], **setting).policies:
            together = policies.pop(f"critic={setting['critic']}_{alone.config['label']}")
            assert together.arrays.keys() == alone.arrays.keys()
            for name, array in alone.arrays.items():
                np.testing.assert_array_equal(together.arrays[name], array, err_msg=name)
    assert not policies


def test_rows_of_what_is_shared_name_what_is_shared_alone(joint: Path) -> None:
    rows = [row for row in sbac.Run.load(joint).metrics if row["phase"] == "estimate"]
    assert {(row["group"], row["critic"], row["seed"]) for row in rows} == {(0, None, 0), (0, None, 1)}


@pytest.mark.parametrize(
    ("second", "followed"),
    [
        ({"critic": "pi", "alpha": 2.0, "weighting": "q"}, [{"critic", "weighting"}]),
        ({"critic": "expectile"}, []),  # it has networks of its own
        ({"critic": "pi", "discount": 0.9}, []),  # the phase reads it
        ({"critic": "pi", "reward_scale": "none"}, []),  # other data
        ({"critic": "pi", "behaviour_dropout": 0.2}, []),  # a number in the program, of the same shapes
    ],
)
def test_what_is_shared(second: dict[str, Any], followed: list[set[str]], tmp_path: Path) -> None:
    options = {name: value for name, value in SMALL.items() if name in ("hidden", "batch_size")}
    grid = Grid(settings=[{"critic": "mu"}, second], steps=20, options=options)
    request = OfflineRequest(data=make_log(), algorithm="sbac", folder=Folder(tmp_path / "run"), grid=grid)
    open_run = OpenRun.open(request)
    with open_run.opened:
        leader, follower = with_leaders(take_up(open_run, None)[0])
    assert leader.lead is None and list(leader.followed) == followed
    assert follower.lead == (Lead(leader.checkpoint.path, 1) if followed else None)


def test_a_broken_one_resumes_to_the_same_bits(joint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken when the leader is done, and again when the follower has begun."""
    real, left = Writer.save, [0]

    def save(self: Writer, *what: Any) -> None:
        real(self, *what)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    for saves in (41, 9):
        left[0] = saves
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Writer, "save", save)
            train(tmp_path / "run", settings=SETTINGS, checkpoint_seconds=0, resume=True)
    train(tmp_path / "run", settings=SETTINGS, resume=True)
    assert contents(tmp_path / "run") == contents(joint)


def test_a_leader_that_failed_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run that fails keeps a policy of its own."""
    steps = count_steps(monkeypatch)
    run = train(tmp_path, critic=["mu", "pi"], critic_learning_rate=1e30)
    assert steps == {0: 2 * 20, 1: 2 * 20} and len(run.failures) == 4
