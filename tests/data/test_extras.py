"""Columns that are neither state, action nor reward, kept for what is watched."""

from pathlib import Path

import numpy as np
import pytest

import sbac

HEAD = "obs:x,obs:y,action,reward,terminated,episode,in range,dose\n"


def write(path: Path, rows: int = 6) -> Path:
    lines = [f"{i},{-i},{i / 10},1,0,{i // 3},{'true' if i % 2 else 'false'},{5 * i}\n" for i in range(rows)]
    path.write_text(HEAD + "".join(lines))
    return path


def test_extras_come_with_a_file_and_change_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv")
    plain, data = sbac.load(path), sbac.load(path, columns={"extras": ["in range", "dose", "obs:x", "nowhere"]})
    assert plain.extras == {} and plain.hash == data.hash
    assert list(data.extras) == ["in range", "dose"]  # x is a state, and the file has no such column
    np.testing.assert_array_equal(data.extras["in range"], [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(data.extras["dose"], 5 * np.arange(6))
    part = data.split(0.5)[0]
    assert list(part.extras["dose"] / 5) == list(part.observations[:, 0])
    one = sbac.load(path, columns={"extras": "dose"})
    np.testing.assert_array_equal(one.extras["dose"], data.extras["dose"])


def test_extras_of_arrays_and_of_several_files(tmp_path: Path) -> None:
    data = sbac.load(write(tmp_path / "log.csv"))
    arrays = data.arrays() | {"w": np.arange(6), "v": np.ones(6)}
    np.savez(tmp_path / "log.npz", **arrays)
    for source in (arrays, tmp_path / "log.npz"):
        np.testing.assert_array_equal(sbac.load(source, columns={"extras": ["w"]}).extras["w"], np.arange(6))
        assert list(sbac.load(source, columns={"extras": ["w", "v"]}).extras) == ["w", "v"]
    files = [write(tmp_path / "a.csv"), write(tmp_path / "b.csv", rows=3)]
    both = sbac.load(files, columns={"extras": ["dose"]})
    np.testing.assert_array_equal(both.extras["dose"], [0, 5, 10, 15, 20, 25, 0, 5, 10])
    files[1].write_text(files[1].read_text().replace("dose", "else"))
    with pytest.raises(sbac.UserError, match="b.csv: only one of it and a.csv has dose"):
        sbac.load(files, columns={"extras": ["dose"]})


def test_gaps_of_extras_are_dealt_with_as_others(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv")
    path.write_text(path.read_text().replace(",20\n", ",\n"))
    with pytest.raises(sbac.UserError, match="dose: expected 6 finite numbers"):
        sbac.load(path, columns={"extras": ["dose"]})
    held = sbac.load(path, columns={"extras": ["dose"]}, missing="hold")
    np.testing.assert_array_equal(held.extras["dose"], [0, 5, 10, 15, 15, 25])
    with pytest.raises(sbac.UserError, match="log: x: expected 2 finite numbers"):
        columns = np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2), np.ones(2)
        sbac.Dataset(*columns, name="log", extras={"x": [1.0]})


def test_long_episodes_are_cut_evenly() -> None:
    terminals = np.zeros(25, bool)
    terminals[[14, 24]] = True
    data = sbac.Dataset(np.zeros((25, 1)), np.zeros((25, 1)), np.zeros(25), terminals, extras={"x": np.arange(25)})
    cut = data.cut(6)
    assert cut.episodes.tolist() == [[0, 7], [7, 15], [15, 25]]
    assert cut.terminals.tolist() == terminals.tolist() and cut.timeouts.sum() == 1
    np.testing.assert_array_equal(cut.extras["x"], np.arange(25))
