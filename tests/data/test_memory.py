"""How much memory a log takes, as a multiple of its columns."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from sbac.algorithms import find
from sbac.data import Dataset, load
from sbac.data.inspect import info
from sbac.training.device_data import DeviceData
from sbac.training.grid import members

ROWS = 400_000


def write_log(path, rows):
    rng = np.random.default_rng(0)
    columns = {
        "observations": rng.standard_normal((rows, 17), np.float32),
        "actions": rng.uniform(-1, 1, (rows, 6)).astype(np.float32),
        "rewards": rng.standard_normal(rows, np.float32),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % 1000 == 999,
    }
    np.savez(path, **columns)
    return sum(column.nbytes for column in columns.values())


def peak(run):
    """The most memory that numpy had at once, and what the function returns."""
    tracemalloc.start()
    try:
        result = run()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def test_a_log_is_held_once(tmp_path):
    size = write_log(tmp_path / "log.npz", ROWS)
    described, data = peak(lambda: (data := load(tmp_path / "log.npz"), info(data))[0])
    assert described < 1.35 * size
    config = members(find("sbac"), "quick", 1, {})[0].config
    packed, _ = peak(lambda: DeviceData.of(find("sbac"), data, config))
    assert packed < 1.4 * size  # beside the log itself


@pytest.mark.parametrize("form", ["parquet", "hdf5", "csv"])
def test_other_formats_are_decoded_in_blocks(form, tmp_path):
    from sbac.data.converting import convert

    size = write_log(tmp_path / "log.npz", 100_000)
    data = load(tmp_path / "log.npz")
    convert(data, tmp_path / f"log.{form}")
    taken, again = peak(lambda: load(tmp_path / f"log.{form}"))
    assert again.hash == data.hash and taken < 1.8 * size


def test_next_states_are_made_when_they_are_asked_for(plain):
    data = Dataset(**plain)
    assert data.hash and "next_observations" not in vars(data)
    np.testing.assert_array_equal(data.next_states(5, 45), data.next_observations[5:45])


@pytest.mark.slow
@pytest.mark.parametrize(("command", "most"), [("info", 1.5), ("train", 3.0)])
def test_the_memory_of_a_command(command, most, tmp_path):
    """Above what a small log needs."""
    size = write_log(tmp_path / "big.npz", 2_000_000)
    write_log(tmp_path / "small.npz", 2_000)
    taken = []
    for name in ("small", "big"):
        file = str(tmp_path / f"{name}.npz")
        words = ["data", "info", file]
        if command == "train":
            words = ["train", file, "--steps", "20", "--no-evaluate", "--out", str(tmp_path / name)]
        process = subprocess.Popen([sys.executable, "-m", "sbac", *words], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0
        taken.append(used.ru_maxrss * 1024)
    assert taken[1] - taken[0] < most * size
