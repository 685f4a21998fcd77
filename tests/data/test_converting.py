"""Every format is written and read back as the same data, or says what it could not hold."""

from typing import Any

import h5py
import numpy as np
import pytest

from sbac.data import Dataset, load
from sbac.data.converting import convert
from sbac.data.formats import those_that
from sbac.errors import UserError
from tests.data.logs import make_log
from tests.data.test_formats import same

BOUNDS: dict[str, Any] = {"action_low": [-2.0, -30.0], "action_high": [2.0, 30.0]}
NAMES = {"npz": "log.npz", "npy": "npy", "hdf5": "log.hdf5", "parquet": "log.parquet", "csv": "log.csv"}
NAMES |= {"minari": "log-v0", "d3rlpy": "buffer.h5"}


@pytest.mark.parametrize("form", those_that("write"))
@pytest.mark.parametrize("stored", [True, False])
def test_the_hash_survives_every_format(form, stored, log, plain, tmp_path):
    columns = log if stored else plain
    columns["actions"] = columns["actions"] * np.array([2, 30], np.float32)
    data = Dataset(**columns, **BOUNDS)
    rows, told = convert(data, tmp_path / NAMES[form], form)
    given = BOUNDS if form == "csv" else {}
    again = load(tmp_path / NAMES[form], **given)
    assert rows == len(again)
    if (form, stored) == ("d3rlpy", True):
        assert told == ["d3rlpy holds no s' at a time limit: that of 3 rows is left out"]
        same(again, Dataset(**{k: v for k, v in columns.items() if k != "next_observations"}, **BOUNDS))
    elif (form, stored) == ("minari", False):
        assert told == ["Minari needs the state after the last step: 3 rows at time limits are left out"]
        known = data.has_next
        np.testing.assert_array_equal(again.actions, data.actions[known])
        running = ~data.terminals[known]
        np.testing.assert_array_equal(again.next_observations[running], data.next_observations[known][running])
        np.testing.assert_array_equal(again.terminals, data.terminals[known])
    else:
        same(again, data)
        assert bool(told) == (form == "csv") and all("--action-low -2 -30 --action-high 2 30" in line for line in told)


def test_minari_reads_what_is_written_for_it(log, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    log["actions"] = log["actions"] * np.float32(2)
    data = Dataset(**log, action_low=-2, action_high=2, environment="Pendulum-v1")
    convert(data, tmp_path / "mine-v0")
    theirs = minari.load_dataset("mine-v0")
    assert (theirs.total_episodes, theirs.total_steps) == (5, 50)
    assert theirs.spec.env_spec.id == "Pendulum-v1"
    assert theirs.action_space.low.tolist() == [-2, -2]
    for (start, stop), episode in zip(data.episodes, theirs.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(episode.observations[1:], data.next_observations[start:stop])
        np.testing.assert_array_equal(episode.rewards, data.rewards[start:stop])
        np.testing.assert_array_equal(episode.terminations, data.terminals[start:stop])
        np.testing.assert_array_equal(episode.truncations, data.timeouts[start:stop])
    again = load("mine-v0")
    assert again.environment == "Pendulum-v1"
    same(again, data)


def test_what_exists_is_kept(plain, tmp_path):
    data = Dataset(**plain)
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(UserError, match="a.csv: exists already; give --overwrite"):
        convert(data, tmp_path / "a.csv")
    (tmp_path / "log-v0").mkdir()
    with pytest.raises(UserError, match="log-v0: exists already; name a new folder"):
        convert(data, tmp_path / "log-v0", overwrite=True)
    assert (tmp_path / "a.csv").read_text() == "mine"
    convert(data, tmp_path / "a.csv", overwrite=True)
    same(load(tmp_path / "a.csv"), data)


def test_formats_that_cannot_hold_a_log_say_so(log, tmp_path):
    log["next_observations"][3] += 1.0
    for form in ("minari", "d3rlpy"):
        with pytest.raises(UserError, match="row 3: its s' is not the next row"):
            convert(Dataset(**log), tmp_path / "out", form)
    with pytest.raises(UserError, match="unknown format 'parqet'; did you mean 'parquet'"):
        convert(Dataset(**log), tmp_path / "out", "parqet")
    with pytest.raises(UserError, match=r"out.pkl: unknown kind of file; expected .npz"):
        convert(Dataset(**log), tmp_path / "out.pkl")
    single = make_log([1, 1], ["timeout", "timeout"])
    del single["next_observations"]
    with pytest.raises(UserError, match="Minari cannot hold it"):
        convert(Dataset(**single), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_bounds_lie_in_the_files_where_others_look_for_them(plain, tmp_path):
    import pyarrow.parquet as parquet

    data = Dataset(**plain, action_low=-2, action_high=2)
    convert(data, tmp_path / "a.hdf5")
    convert(data, tmp_path / "a.parquet")
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert np.asarray(file.attrs["action_high"]).tolist() == [2, 2]
    assert parquet.read_schema(tmp_path / "a.parquet").metadata[b"action_high"] == b"[2.0, 2.0]"
