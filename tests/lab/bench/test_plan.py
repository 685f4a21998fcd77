"""What a bench consists of: its cells, and what tells one from another."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.lab.bench.cluster import PROTOCOL, save_log, small_cells
from tests.small import make_log

from sbac.algorithms import REGISTRY, find
from sbac.errors import UserError
from sbac.lab.bench.code import code_version, sources
from sbac.lab.bench.finding import load_with_identity
from sbac.lab.bench.plan import parse_grids, plan
from sbac.lab.protocol import Protocol

OFFLINE = [name for name in REGISTRY if not find(name).online]


def test_schedule_is_dense_at_the_end_and_sparse_before() -> None:
    steps = Protocol().schedule(1_000_000)
    assert steps[-10:] == list(range(955_000, 1_000_001, 5_000))
    assert len(steps) == 15 and steps[0] == 190_000 and np.ptp(np.diff(steps[:5])) == 0
    assert Protocol().schedule(200_000)[-10:] == list(range(155_000, 200_001, 5_000))
    for short in (1, 3, 40, 999):
        at = Protocol().schedule(short)
        assert at[-1] == short and min(at) > 0 and at == sorted(set(at))


def test_every_method_has_as_many_settings_as_sbac() -> None:
    for preset in ("quick", "paper"):
        for method in OFFLINE:
            (cell,) = plan(["data"], [method], seeds=1, preset=preset)
            assert len(cell.runs(None)) == 4, cell.algorithm


def test_presets_by_method() -> None:
    chosen = {(c.algorithm, c.preset) for c in plan(["a"], ["sbac@paper", "sbac", "bc"], preset="corrected")}
    assert chosen == {("sbac", "paper"), ("sbac", "corrected"), ("bc", "paper")}
    with pytest.raises(UserError, match="twice"):
        plan(["a"], ["bc", "bc"])
    with pytest.raises(UserError, match="alhpa"):
        plan(["a"], ["sbac"], grids={"sbac": {"alhpa": [1.0]}})


@pytest.mark.parametrize("preset", ["quick", "tuned", "paper", "corrected"])
def test_two_names_of_the_same_training_are_refused(preset: str) -> None:
    """In presets without w the ablation that takes w away takes nothing away; all other methods differ."""
    assert plan(["a"], [method for method in OFFLINE if method != "sbac-no-w"], preset=preset)
    both = ["sbac", "sbac-no-w"]
    if preset in ("paper", "corrected"):
        assert len(plan(["a"], both, preset=preset)) == 2
        return
    with pytest.raises(UserError, match=f"sbac@{preset} and sbac-no-w@{preset} are the same"):
        plan(["a"], both, preset=preset)
    grids = {"sbac": {"weighting": "q"}, "sbac-no-w": {}}
    assert len(plan(["a"], both, preset=preset, grids=grids)) == 2


def test_online_methods_have_one_cell_per_environment() -> None:
    tasks = ["hopper-medium-made", "hopper-expert-made", "walker2d-medium-made"]
    cells = plan(tasks, ["bc", "td3"], length=[100])
    assert [(c.data, c.environment) for c in cells if c.online] == [
        ("Hopper-v4", "hopper-medium-made"),
        ("Walker2d-v4", "walker2d-medium-made"),
    ]
    assert sum(not c.online for c in cells) == 3
    with pytest.raises(UserError, match="--env"):
        plan(["log.npz"], ["td3"])


def test_grids_from_the_command_line() -> None:
    assert parse_grids(["sbac.alpha=0.2,2", "bc.batch-size=8"], no_grid=False) == {
        "sbac": {"alpha": [0.2, 2]},
        "bc": {"batch_size": 8},
    }
    wide = parse_grids(["sbac.hidden=[512, 512]", "bc.hidden=[64]"], no_grid=False)
    assert wide == {"sbac": {"hidden": [512, 512]}, "bc": {"hidden": [64]}}
    none = parse_grids(["sbac.alpha=1,2"], no_grid=True)
    assert none["bc"] == {} and none["sbac"] == {"alpha": [1, 2]}
    with pytest.raises(UserError, match="NAME.FIELD"):
        parse_grids(["alpha=1"], no_grid=False)


def test_a_key_changes_with_whatever_changes_the_numbers() -> None:
    code = code_version("bc")
    (cell,) = small_cells(["log"])
    keys = {
        cell.key(None, "data", PROTOCOL, code),
        small_cells(["log"], length=[41])[0].key(None, "data", PROTOCOL, code),
        small_cells(["log"], seeds=3)[0].key(None, "data", PROTOCOL, code),
        small_cells(["log"], environment=None)[0].key(None, "data", PROTOCOL, code),
        cell.key(None, "other data", PROTOCOL, code),
        cell.key(None, "data", dataclasses.replace(PROTOCOL, episodes=5), code),
        cell.key(None, "data", PROTOCOL, code | {"hash": "another"}),
    }
    assert len(keys) == 7
    assert cell.key(None, "data", dataclasses.replace(PROTOCOL, final_episodes=5), code) in keys


def test_data_is_known_by_its_hash_and_made_data_by_what_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBAC_DATA", str(tmp_path))
    made = '{"ladder": "abc", "tier": "medium", "size": 600, "seed": 0, "mujoco": "3.4.0"}'
    columns = {name: getattr(make_log(600, 50), name) for name in ("observations", "actions", "rewards", "terminals")}
    labels = {"name": "hopper-medium-made", "kind": "made", "task": "hopper-medium-made", "identity": made}
    columns["actions"] = columns["actions"] / 2
    arrays = {**columns, **{name: np.array(label) for name, label in labels.items()}}
    np.savez(tmp_path / "hopper-medium-made.npz", allow_pickle=False, **arrays)
    assert load_with_identity("hopper-medium-made")[1] == made
    assert load_with_identity(save_log(tmp_path / "log.npz"))[1] == make_log(600, 50).hash


def test_code_version_covers_what_a_method_imports() -> None:
    files = sources("sbac")
    expected = {"sbac.algorithms.sbac", "sbac.algorithms.base", "sbac.config", "sbac.nn.gaussian", "sbac.ratio.mmd"}
    assert expected | {"sbac.training.engine"} <= set(files)
    assert not {"sbac.algorithms", "sbac.algorithms.bc", "sbac.lab.report.markdown"} & set(files)
    assert "sbac.ratio.mmd" not in sources("bc")
    assert code_version("sbac") != code_version("bc")
