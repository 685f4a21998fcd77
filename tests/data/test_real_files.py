"""Small files that other libraries wrote (README.md says how), read here as those libraries read them."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as parquet
import pytest

from sbac.data import Dataset, load
from sbac.data.converting import convert
from sbac.errors import UserError
from tests.data.test_formats import same

REAL = Path(__file__).parent / "real"


def test_d3rlpy_buffer():
    """Three episodes; the second is cut. d3rlpy draws 5, 2 and 4 transitions from it."""
    data = load(REAL / "d3rlpy-2.8.1.h5")
    assert data.episodes.tolist() == [[0, 5], [5, 8], [8, 12]]
    assert np.flatnonzero(data.terminals).tolist() == [4, 11] and np.flatnonzero(data.timeouts).tolist() == [7]
    assert data.has_next.sum() == 5 + 2 + 4
    with h5py.File(REAL / "d3rlpy-2.8.1.h5") as file:
        for name in ("observations", "actions", "rewards"):
            stored = np.concatenate([np.asarray(file[f"{name}_{i}"]) for i in range(3)])
            np.testing.assert_array_equal(getattr(data, name), stored.reshape(getattr(data, name).shape))


def test_a_written_d3rlpy_buffer_has_the_layout_of_a_real_one(tmp_path):
    real = REAL / "d3rlpy-2.8.1.h5"
    convert(load(real), tmp_path / "again.h5", "d3rlpy")
    same(load(tmp_path / "again.h5"), load(real))
    with h5py.File(real) as theirs, h5py.File(tmp_path / "again.h5") as ours:
        assert set(theirs) == set(ours)
        for name in theirs:
            a, b = theirs[name], ours[name]
            assert isinstance(a, h5py.Dataset) and isinstance(b, h5py.Dataset)
            assert a.shape == b.shape and np.array_equal(a[()], b[()]), name


def test_d3rlpy_before_version_2(plain, tmp_path):
    with h5py.File(tmp_path / "log.h5", "w") as file:
        file.update({name: plain[name] for name in ("observations", "actions", "rewards", "terminals")})
        file["episode_terminals"] = plain["terminals"] | plain["timeouts"]
    same(load(tmp_path / "log.h5"), Dataset(**plain))


def test_d3rlpy_buffers_of_all_sorts(tmp_path):
    def after(change, message):
        path = Path(shutil.copy(REAL / "d3rlpy-2.8.1.h5", tmp_path / "log.h5"))
        with h5py.File(path, "r+") as file:
            change(file)
        assert message in str(pytest.raises(UserError, load, path).value)

    def replace(file, name, value):
        del file[name]
        file[name] = value

    after(lambda f: f.__delitem__("rewards_1"), "rewards_1: missing")
    after(lambda f: f.move("observations_1", "observations_1_0"), "several arrays an observation are not supported")
    after(lambda f: replace(f, "num_episodes", 10**12), "num_episodes: 1000000000000, but the file has 15 arrays")
    after(lambda f: replace(f, "num_episodes", 0), "zero episodes")
    after(lambda f: replace(f, "actions_2", np.zeros((3, 2))), "episode 2: actions has shape (3, 2), expected (4, 2)")
    after(lambda f: replace(f, "actions_2", np.zeros((4, 3))), "episode 2: actions has shape (4, 3), expected (4, 2)")


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_lerobot_dataset(version):
    """Three episodes of 5, 3 and 4 frames; the second ends without success."""
    data = load(REAL / f"lerobot-{version}")
    assert data.episodes.tolist() == [[0, 5], [5, 8], [8, 12]]
    assert np.flatnonzero(data.terminals).tolist() == [4, 11] and np.flatnonzero(data.timeouts).tolist() == [7]
    files = sorted((REAL / f"lerobot-{version}" / "data").rglob("*.parquet"))
    frames = [row for file in files for row in parquet.read_table(file).to_pylist()]
    assert len(files) == (3 if version == "v2" else 1)
    np.testing.assert_array_equal(data.observations, np.array([row["observation.state"] for row in frames], np.float32))
    np.testing.assert_array_equal(data.actions, np.array([row["action"] for row in frames], np.float32))
    np.testing.assert_array_equal(data.rewards, np.array([row["next.reward"] for row in frames], np.float32))
    assert data.hash == load(REAL / "lerobot-v3").hash


def test_lerobot_columns_that_do_not_say_enough(tmp_path):
    folder = tmp_path / "robot"
    shutil.copytree(REAL / "lerobot-v3", folder)
    file = folder / "data" / "chunk-000" / "file-000.parquet"
    whole = parquet.read_table(file)
    parquet.write_table(whole.drop_columns(["next.success"]), file)
    with pytest.raises(UserError, match=r"next.done does not say .* --columns terminals=COLUMN"):
        load(folder)
    assert load(folder, columns={"terminals": "next.done"}).terminals.sum() == 3
    parquet.write_table(whole.drop_columns(["next.reward"]), file)
    with pytest.raises(UserError, match="rewards: missing"):
        load(folder)
    (folder / "meta" / "info.json").write_text('{"codebase_version": "v1.6"}')
    with pytest.raises(UserError, match="codebase_version 'v1.6'; expected LeRobot's version 2 or 3"):
        load(folder)


def test_ogbench_arrays():
    """Three trajectories; the task is done in rows 2, 6 and 10, and rows 3 and 6 and 10 end a trajectory."""
    data = load(REAL / "ogbench-1.2.2.npz")
    assert np.flatnonzero(data.terminals).tolist() == [2, 6, 10]
    assert np.flatnonzero(data.timeouts).tolist() == [3]
    assert data.has_next.all() and data.rewards.tolist() == [-1, -1, 0, -1, -1, -1, 0, -1, -1, -1, 0]
    with np.load(REAL / "ogbench-1.2.2.npz") as file:
        np.testing.assert_array_equal(data.next_observations, file["next_observations"])


def test_an_ogbench_file_without_a_task_says_how_to_get_one():
    with pytest.raises(UserError, match="rewards: missing; this OGBench file has no task. .*singletask"):
        load(REAL / "ogbench-1.2.2-raw.npz")
