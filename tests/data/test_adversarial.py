"""Files that are broken or hostile: one clear line, no hang, no code run, bounded memory."""

import io
import json
import os
import pickle
import shutil
import struct
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import sbac
from sbac.data import Dataset, load
from sbac.errors import UserError
from tests.data.test_formats import WRITERS, write_csv, write_hdf5, write_minari, write_npz, write_parquet_numbered
from tests.data.test_real_files import REAL

MEGABYTE = 2**20
NEEDED = ("observations", "actions", "rewards")


def refused(source, message=".", megabytes=40, seconds=10.0):
    """The one line, reached within bounds of memory and processor time, which a busy machine hardly changes."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(UserError, match=message) as caught:
            load(source)
        assert tracemalloc.get_traced_memory()[1] < megabytes * MEGABYTE
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < seconds
    line = str(caught.value)
    assert "\n" not in line and Path(source).name in line
    return line


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("write", [write_hdf5, write_npz, write_parquet_numbered, write_csv])
@pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.9, 0.99])
def test_truncated_files(write, kept, log, tmp_path):
    path = write(tmp_path, log)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    if write is write_csv and kept:
        with pytest.raises(UserError):  # a cut line lacks columns, or a cut number makes the last row
            load(path)
    else:
        refused(path, "not a readable")


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".h5", ".parquet"])
def test_renamed_pickle_runs_nothing(suffix, tmp_path):
    path = tmp_path / f"log{suffix}"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    refused(path, "not a readable")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("folder", [False, True])
def test_object_arrays_run_nothing(folder, plain, tmp_path):
    bombs = np.array([Bomb(tmp_path / "mark")] * 50, object)
    if folder:
        for name, column in plain.items():
            np.save(tmp_path / f"{name}.npy", column)
        np.save(tmp_path / "rewards.npy", bombs, allow_pickle=True)
        refused(tmp_path, "Python objects")
    else:
        np.savez(tmp_path / "log.npz", **plain | {"rewards": bombs})
        refused(tmp_path / "log.npz", "rewards: holds Python objects")
    assert not (tmp_path / "mark").exists()


def test_a_pickle_inside_an_archive_runs_nothing(plain, tmp_path):
    path = write_npz(tmp_path, {k: v for k, v in plain.items() if k != "rewards"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rewards.npy", pickle.dumps(Bomb(tmp_path / "mark")))
    refused(path, "not a readable npz file")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "rewards", [np.array([b"abc"] * 50), np.zeros(50, [("a", "f4"), ("b", "i4")]), np.zeros(50, complex)]
)
def test_wrong_dtypes(rewards, plain, tmp_path):
    log = plain | {"rewards": rewards}
    refused(write_npz(tmp_path, log), "rewards: expected numbers")
    refused(write_hdf5(tmp_path, log), "rewards: expected numbers")


# --- claims in the header ---


def npy_bytes(shape, body=b"", dtype="<f4"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + body


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(10**8, 11), (10**18, 10**18), (-5, 11)])
def test_npy_header_that_claims_too_much(method, shape, plain, tmp_path):
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "log.npz", "w", method) as archive:
        for name in NEEDED:
            archive.writestr(f"{name}.npy", npy_bytes(shape, bytes(1000)))
            (tmp_path / "folder" / f"{name}.npy").write_bytes(npy_bytes(shape, bytes(1000)))
    for source in ("log.npz", "folder"):
        refused(tmp_path / source, "the header claims|not a readable")


def test_npy_header_of_endless_length(tmp_path):
    endless = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 10_000
    deep = b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000
    for content in (endless, deep):
        for name in NEEDED:
            (tmp_path / f"{name}.npy").write_bytes(content)
        refused(tmp_path, "not a readable")


@pytest.fixture
def low_limit(monkeypatch):
    """The limit for small files, lowered so that the files of a test need not be large."""
    monkeypatch.setattr("sbac.data.formats.log.FLOOR", 4 * MEGABYTE)


def test_zip_bomb(low_limit, tmp_path):
    path = write_npz(tmp_path, {"actions": np.zeros((1, 1)), "rewards": np.zeros(1)})
    archive = zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED)
    with archive, archive.open("observations.npy", "w", force_zip64=True) as member:
        member.write(npy_bytes((5 * 10**6, 1), bytes(20 * 10**6)))
    assert path.stat().st_size < 0.05 * MEGABYTE
    refused(path, "claims 20,000,.* refusing to expand", megabytes=10)


@pytest.mark.parametrize("chunks", [None, (1000, 11)])
def test_hdf5_shape_without_data(chunks, tmp_path):
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file.create_dataset("observations", (10**8, 11), "f4", chunks=chunks)
        file.create_dataset("actions", (10**8, 3), "f4", chunks=chunks and (1000, 3))
        file.create_dataset("rewards", (10**8,), "f4")
    refused(tmp_path / "log.hdf5", "claims .* refusing to expand")


def test_hdf5_with_one_endless_chunk(plain, tmp_path):
    path = write_hdf5(tmp_path, plain)
    with h5py.File(path, "r+") as file:
        del file["rewards"]
        file.create_dataset("rewards", (50,), "f4", chunks=(10**8,), maxshape=(None,), compression="gzip")
    refused(path, "claims .* refusing to expand")


def test_parquet_that_repeats_one_value(low_limit, tmp_path):
    names = [*(f"observations_{i}" for i in range(8)), "actions", "rewards"]
    zeros = pa.array(np.zeros(1_000_000, np.int8))
    parquet.write_table(pa.table([zeros] * 10, names), tmp_path / "log.parquet")
    assert (tmp_path / "log.parquet").stat().st_size < 0.05 * MEGABYTE
    refused(tmp_path / "log.parquet", "claims 44,000,000 bytes")  # vectors as float32, the reward as float64


def test_parquet_footer_tells_the_length_of_lists(low_limit, tmp_path):
    """A few kilobytes that hold rows of 12,000 zeros: refused by the footer, before a list is decoded."""
    schema = pa.schema([(name, pa.list_(pa.float32())) for name in NEEDED])
    zeros = pa.ListArray.from_arrays(
        np.arange(0, 12_000 * 256 + 1, 12_000, dtype=np.int32), np.zeros(12_000 * 256, "f4")
    )
    with parquet.ParquetWriter(tmp_path / "log.parquet", schema, compression="zstd") as writer:
        for _ in range(4):
            writer.write_table(pa.table(dict.fromkeys(NEEDED, zeros), schema))
    assert (tmp_path / "log.parquet").stat().st_size < 0.03 * MEGABYTE
    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    refused(tmp_path / "log.parquet", "claims 98,304,000 bytes .*--max-bytes")  # two vectors; no such reward
    assert pool.total_bytes_allocated() - before < MEGABYTE


def test_small_types_count_by_what_they_become(low_limit, tmp_path):
    small = {"actions": np.zeros((1, 1), np.int8), "rewards": np.zeros(1, np.int8)}  # 5 bytes in memory
    with h5py.File(write_hdf5(tmp_path, small), "r+") as file:
        file.create_dataset("observations", (1_000_000, 2), "i1", chunks=(1000, 2))
    refused(tmp_path / "log.hdf5", "claims 8,002,005 bytes")
    np.savez_compressed(tmp_path / "log.npz", **small, observations=np.zeros((1_000_000, 2), np.int8))
    refused(tmp_path / "log.npz", "claims 8,000,005 bytes")


def write_deflated(path, megabytes, times):
    """A chunk that is declared as 400 bytes and expands to megabytes."""
    with h5py.File(path, "w") as file:
        file["actions"], file["rewards"] = np.zeros((50, 1)), np.zeros(50)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((50, 2))
        for _ in range(times):
            plist.set_deflate(9)
        space = h5py.h5s.create_simple((50, 2))
        dataset = h5py.h5d.create(file.id, b"observations", h5py.h5t.IEEE_F32LE, space, plist)
        stored = bytes(megabytes * MEGABYTE)
        for _ in range(times):
            stored = zlib.compress(stored, 1)
        dataset.write_direct_chunk((0, 0), stored)
    return path


@pytest.mark.parametrize("times", [1, 2])
def test_hdf5_chunks_that_expand_beyond_their_size(times, tmp_path, monkeypatch):
    monkeypatch.setattr("sbac.data.formats.hdf5.FLOOR", 4 * MEGABYTE)
    path = write_deflated(tmp_path / "log.hdf5", 20, times)
    assert path.stat().st_size < 0.2 * MEGABYTE
    refused(path, "a chunk expands beyond its declared 400 bytes" if times == 1 else "are compressed twice")


def test_large_honest_chunks_are_read(plain, tmp_path, monkeypatch):
    monkeypatch.setattr("sbac.data.formats.hdf5.FLOOR", 1)
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, column in plain.items():
            file.create_dataset(name, data=column, compression="gzip", shuffle=True, fletcher32=True)
    assert load(path).hash == Dataset(**plain).hash


@pytest.mark.parametrize("write", WRITERS)
def test_one_limit_for_all_formats(write, log, tmp_path):
    """50 rows of 4 observations, 2 actions, a reward and flags; s' where it is stored."""
    path = write(tmp_path / "x" if write is write_minari else tmp_path, log)
    with pytest.raises(UserError, match="refusing to expand it beyond 1,000 bytes"):
        load(path, max_bytes=1000)
    assert load(path, max_bytes=100_000).hash == Dataset(**log).hash


# --- ways out of the file ---


def test_hdf5_links_are_not_followed(plain, tmp_path):
    secret = write_hdf5(tmp_path, plain).rename(tmp_path / "secret.hdf5")
    for link in (h5py.ExternalLink("secret.hdf5", "/rewards"), h5py.ExternalLink("../secret.hdf5", "/rewards")):
        path = write_hdf5(tmp_path, {k: v for k, v in plain.items() if k != "rewards"})
        with h5py.File(path, "r+") as file:
            file["rewards"] = link
        refused(path, "rewards: is a link")
    with h5py.File(path, "r+") as file:
        del file["rewards"]
        file["rewards"] = h5py.SoftLink("/observations")
    refused(path, "rewards: is a link")
    assert secret.exists()


def test_hdf5_data_in_other_files_is_not_read(plain, tmp_path):
    (tmp_path / "secret.bin").write_bytes(plain["rewards"].tobytes())
    others = {k: v for k, v in plain.items() if k != "rewards"}
    path = write_hdf5(tmp_path, others)
    with h5py.File(path, "r+") as file:
        file.create_dataset("rewards", (50,), "f4", external=[(str(tmp_path / "secret.bin"), 0, 200)])
    refused(path, "rewards: keeps its data in another file")
    secret = write_hdf5(tmp_path, plain).rename(tmp_path / "secret.hdf5")
    layout = h5py.VirtualLayout((50,), "f4")
    layout[:] = h5py.VirtualSource(str(secret), "rewards", (50,))
    path = write_hdf5(tmp_path, others)
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("rewards", layout)
    refused(path, "rewards: keeps its data in another file")


def test_hdf5_group_in_place_of_a_column(plain, tmp_path):
    path = write_hdf5(tmp_path, {k: v for k, v in plain.items() if k != "rewards"})
    with h5py.File(path, "r+") as file:
        file["rewards/deep"] = plain["rewards"]
    refused(path, "rewards: expected an array of numbers, got a group")
    with h5py.File(path, "r+") as file:
        del file["rewards"]
        file["rewards"] = h5py.Empty("f4")
    refused(path, "rewards: is empty")


def test_archive_members_with_dots_go_nowhere(plain, tmp_path):
    (tmp_path / "inner").mkdir()
    path = write_npz(tmp_path / "inner", plain)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../escaped.npy", npy_bytes((1,), bytes(4)))
    before = sorted(tmp_path.rglob("*"))
    assert len(load(path)) == 50
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["../outside-made", "../../hopper-medium-made", "data/../../x-v2", "D4RL/../../x-v0"])
def test_names_with_dots_do_not_leave_the_data_folder(name, plain, tmp_path, monkeypatch):
    (tmp_path / "a" / "data").mkdir(parents=True)
    Dataset(**plain).save(tmp_path / "outside-made.npz")
    Dataset(**plain).save(tmp_path / "hopper-medium-made.npz")
    monkeypatch.setenv("SBAC_DATA", str(tmp_path / "a" / "data"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "a" / "data"))
    with pytest.raises(UserError):
        load(name)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "log.npz")
    refused(tmp_path / "log.npz", "not a regular file")


# --- Minari folders ---


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "[1]",
        "{" * 50_000,
        "[" * 50_000,
        json.dumps({"action_space": "{"}),
        json.dumps({"action_space": json.dumps({"type": "Box", "low": ["a"], "high": [1.0]})}),
        json.dumps({"action_space": json.dumps({"type": "Box", "low": [[0.0], [0.0, 1.0]]})}),
        json.dumps({"action_space": 7}),
        json.dumps({"action_space": json.dumps({"type": ["Box"]})}),
    ],
)
def test_minari_metadata_of_all_sorts(metadata, log, tmp_path):
    folder = write_minari(tmp_path / "m", log)
    (folder / "data" / "metadata.json").write_text(metadata)
    if metadata == json.dumps({"action_space": 7}):
        refused(folder, "action_space")
    else:
        refused(folder)


def test_minari_episodes_of_all_sorts(log, tmp_path):
    folder = write_minari(tmp_path / "m", log)
    path = folder / "data" / "main_data.hdf5"
    whole = path.read_bytes()

    def after(change, message):
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            change(file)
        assert message in str(pytest.raises(UserError, load, folder).value)

    def replace(file, name, value):
        del file[name]
        file[name] = value

    after(lambda f: f.__delitem__("episode_1/rewards"), "episode_1: rewards is missing")
    after(lambda f: replace(f, "episode_2", h5py.ExternalLink("x.hdf5", "/")), "episode_2: expected an episode")
    after(lambda f: replace(f, "episode_2", np.zeros(3)), "episode_2: expected an episode")
    after(lambda f: replace(f, "episode_0/actions", np.zeros((3, 2))), "episode 0: actions has shape (3, 2)")
    after(lambda f: replace(f, "episode_0/rewards", np.zeros(0)), "episode 0: zero steps")
    after(lambda f: replace(f, "episode_0/rewards", 1.0), "episode 0: zero steps")
    after(lambda f: [f.__delitem__(name) for name in list(f)], "zero episodes")
    after(lambda f: replace(f, "episode_0/actions", np.zeros((10, 5))), "actions")
    path.unlink()
    refused(folder)


# --- tables ---


def test_tables_of_all_sorts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("obs_0,action,reward\n1,0.5,1\n".encode("utf-16"))
    refused(path, "expected text in UTF-8")
    path.write_bytes(b"PK\x03\x04\x14\x00\x06\x00" + bytes(range(256)))
    refused(path, "this is a workbook")
    for content in (b"", b"\n\n\n", b"rewards\n1\n2,3\n", b"rewards,rewards\n1,2\n", b"a;b\n1;2\n"):
        path.write_bytes(content)
        refused(path)
    path.write_text("rewards,terminals\n")
    refused(path, "no observations and no actions; .* the file has rewards, terminals")


# --- damage ---


def test_dates_that_cannot_be_read(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("day,obs_0,action,reward\n01.02.2023,1,0.5,1\n02.02.2023,2,0.5,1\n")
    with pytest.raises(UserError, match="expected numbers, or dates as in 2026-01-31 08:00, got string"):
        load(path, columns={"time": "day"})


def of_another_library(name):
    """Writes a copy of a file that another library wrote."""

    def write(path, log):
        real = REAL / name
        return Path(shutil.copytree(real, path / name) if real.is_dir() else shutil.copy(real, path / name))

    return write


@pytest.mark.parametrize(
    "write", [*WRITERS, *map(of_another_library, ["d3rlpy-2.8.1.h5", "lerobot-v2", "lerobot-v3", "ogbench-1.2.2.npz"])]
)
def test_damaged_bytes_are_refused_or_read_but_never_crash(write, log, tmp_path):
    source = write(tmp_path / "x" if write is write_minari else tmp_path, log)
    files = [path for path in sorted(source.rglob("*")) if path.is_file()] or [source]
    rng = np.random.default_rng(0)
    for turn in range(60):
        path = files[turn % len(files)]
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 20)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        for read in (load, lambda source: sbac.stream(source).survey):
            try:
                read(source)
            except UserError as error:
                assert "\n" not in str(error)
        path.write_bytes(whole)


def test_columns_that_could_be_the_same_are_refused(tmp_path):
    doubled = tmp_path / "doubled.csv"
    doubled.write_text("obs_0,obs_0,action,reward,terminal\n1,2,0.5,1,0\n3,4,0.5,1,1\n")
    with pytest.raises(UserError, match="two columns are named 'obs_0'"):
        sbac.load(doubled)
    ragged = {"obs_0": np.zeros(4), "obs_1": np.zeros(3), "actions": np.zeros(4), "rewards": np.zeros(4)}
    with pytest.raises(UserError, match="obs_1 has another number of rows"):
        sbac.load(ragged | {"terminals": np.zeros(4)})
    with pytest.raises(UserError, match="both obs_1 and obs1"):
        sbac.load(ragged | {"obs_1": np.zeros(4), "obs1": np.zeros(4), "terminals": np.zeros(4)})


def test_an_episode_without_a_number_is_refused():
    numbers = {"observations": np.zeros((4, 1)), "actions": np.zeros((4, 1)), "rewards": np.zeros(4)}
    with pytest.raises(UserError, match="episode: row 1"):
        sbac.load(numbers | {"terminals": np.zeros(4), "episode": np.array([0, np.nan, 1, 1])})
