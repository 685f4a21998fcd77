"""Bounds of the actions: from the caller, the file or the environment; else -1 and 1."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

import sbac
from sbac.data import Dataset, load
from sbac.errors import UserError
from tests.data.test_formats import listed, numbered, write_csv, write_hdf5, write_npz


@pytest.fixture
def wide(plain):
    """One action that reaches beyond 1, as Pendulum's does."""
    return plain | {"actions": plain["actions"][:, :1] * np.float32(2)}


def in_npz(path, log):
    return write_npz(path, log | {"action_low": np.float32(-2), "action_high": np.array([2], np.float32)})


def in_hdf5_datasets(path, log):
    return write_hdf5(path, log | {"action_low": np.array([-2], np.float32), "action_high": np.array([2], np.float32)})


def in_parquet(path, log):
    table = pa.table(listed(log)).replace_schema_metadata({"action_low": "-2", "action_high": "[2.0]"})
    parquet.write_table(table, path / "log.parquet")
    return path / "log.parquet"


@pytest.mark.parametrize("write", [in_npz, in_hdf5_datasets, in_parquet])
def test_bounds_of_the_file(write, wide, tmp_path):
    """As others write them; test_converting.py has them as we do, in attributes and npy files too."""
    data = load(write(tmp_path, wide))
    assert data.action_low.tolist() == [-2] and data.action_high.tolist() == [2]
    assert data.hash == Dataset(**wide, action_low=-2, action_high=2).hash


def test_bounds_by_the_caller_and_by_the_environment(wide, tmp_path):
    path = write_csv(tmp_path, wide)
    with pytest.raises(UserError, match=r"\[-1, 1\].* in the file, or by --env, --action-low, --action-high"):
        load(path)
    expected = Dataset(**wide, action_low=-2, action_high=2)
    assert load(path, action_low=-2, action_high=[2.0]).hash == expected.hash
    data = load(path, environment="Pendulum-v1")
    assert data.hash == expected.hash and data.environment == "Pendulum-v1"
    assert load(path, environment="Pendulum-v1", action_high=3).action_high.tolist() == [3]
    assert load(wide, action_low=-2, action_high=2).hash == expected.hash


def test_the_caller_outranks_the_file_and_the_file_outranks_the_environment(wide, tmp_path):
    path = in_npz(tmp_path, wide | {"actions": wide["actions"] / 2})
    assert load(path, action_high=5).action_high.tolist() == [5]
    assert load(path, environment="MountainCarContinuous-v0").action_high.tolist() == [2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_high": np.inf}, "action_high: expected finite bounds"),
        ({"action_low": -1e300}, "action_low: expected finite bounds"),
        ({"action_low": -3e38, "action_high": 3e38}, "action_high: expected a range"),
        ({"action_high": np.ma.array([2.0], mask=[True])}, "action_high: a masked array"),
        ({"action_high": "two"}, "action_high: expected a number"),
        ({"environment": "Nowhere-v0"}, "environment 'Nowhere-v0'"),
        ({"environment": "CartPole-v1"}, "not a flat box"),
        ({"horizon": "x"}, "horizon: expected a whole number, got 'x'"),
        ({"horizon": True}, "horizon: expected a whole number"),
        ({"columns": "rewards"}, "columns: expected a mapping"),
        ({"task": 3}, "task: expected a name"),
        ({"max_bytes": "4G"}, "max_bytes: expected a whole number"),
        ({"max_bytes": 0}, "max_bytes 0: expected at least 1"),
        ({"missing": "guess"}, "unknown way with missing values"),
    ],
)
def test_bad_options_get_one_line(options, message, wide, tmp_path):
    with pytest.raises(UserError, match=message) as caught:
        load(write_csv(tmp_path, wide), **options)
    assert "\n" not in str(caught.value)


def test_bad_bounds_in_a_file_are_named(wide, tmp_path):
    table = pa.table(listed(wide)).replace_schema_metadata({"action_low": "low"})
    parquet.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(UserError, match="metadata action_low: expected a number"):
        load(tmp_path / "log.parquet")
    with pytest.raises(UserError, match="action_high: expected finite"):
        load(write_npz(tmp_path, wide | {"action_high": np.array([np.inf])}))


def test_an_environment_without_bounds_asks_for_them(wide):
    import gymnasium

    class Unbounded(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (4,))
        action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))

    with pytest.raises(UserError, match="no finite bounds; give --action-low and --action-high"):
        load(wide, environment=Unbounded)


def test_a_saved_log_keeps_its_environment_and_no_module(wide, tmp_path):
    data = Dataset(**wide, action_low=-2, action_high=2, environment="Pendulum-v1")
    data.save(tmp_path / "a.npz")
    assert load(tmp_path / "a.npz").environment == "Pendulum-v1"
    Dataset(**wide, action_low=-2, action_high=2, environment="evil:Pendulum-v1").save(tmp_path / "b.npz")
    assert load(tmp_path / "b.npz").environment is None


def test_masked_values_and_unknown_kinds_get_one_line(plain):
    masked = np.ma.array(plain["rewards"], mask=np.arange(50) == 7)
    with pytest.raises(UserError, match="rewards: a masked array with 1 masked values, the first in row 7"):
        Dataset(**plain | {"rewards": masked})
    with pytest.raises(UserError, match="rewards: a masked array"):
        sbac.load(plain | {"rewards": masked})
    assert len(Dataset(**plain | {"rewards": np.ma.array(plain["rewards"])})) == 50
    for make in (lambda: Dataset(**plain, kind="mnari"), lambda: load(plain | {"kind": "mnari"})):
        with pytest.raises(UserError, match="unknown kind of data 'mnari'; did you mean 'Minari'"):
            make()


def test_whole_numbers_that_begin_a_csv_may_be_followed_by_others(plain, tmp_path, monkeypatch):
    """Types are taken from the first block, and a later one may say otherwise."""
    monkeypatch.setattr("sbac.data.formats.csv_text.BLOCK_BYTES", 200)
    columns = numbered(plain)
    columns["rewards"] = np.where(np.arange(50) < 40, 1.0, 0.25)
    columns["actions_0"] = np.where(np.arange(50) < 40, 1.0, 0.5)
    columns["actions_1"] = np.zeros(50)
    csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text()
    assert ",1,0\n" in text or ",1," in text  # arrow writes 1.0 as 1
    data = load(tmp_path / "t.csv")
    np.testing.assert_array_equal(data.rewards, columns["rewards"])
    np.testing.assert_array_equal(data.actions[:, 0], columns["actions_0"])
    columns["actions_0"] = np.arange(50) % 2
    columns["actions_1"] = np.arange(50) % 2
    csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    with pytest.raises(UserError, match="discrete actions"):
        load(tmp_path / "t.csv")
