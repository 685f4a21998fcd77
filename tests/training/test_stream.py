"""A streamed log: the rows of the whole log, the same bits after a break, batches as good as uniform ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import sbac
from sbac.algorithms import find
from sbac.data import streaming
from sbac.data.converting import convert
from sbac.data.dataset import Dataset
from sbac.errors import UserError
from sbac.training import loop
from sbac.training.grid import members
from sbac.training.stream import Stream
from sbac.training.table import NEEDS, Scaling, build_table, draw

ROWS, OBS, ACT = 1000, 3, 2
SMALL: dict[str, Any] = {"hidden": [8], "batch_size": 16}


def columns(rows: int = ROWS, seed: int = 0) -> dict[str, np.ndarray]:
    """Episodes of 37 rows, every third of which ends at a terminal; the log drifts, so that blocks differ."""
    rng = np.random.default_rng(seed)
    last = np.arange(rows) % 37 == 36
    third = np.arange(rows) // 37 % 3 == 0
    drift = np.linspace(-1, 1, rows)[:, None]
    return {
        "observations": (rng.normal(size=(rows, OBS)) + drift).astype(np.float32),
        "actions": np.clip(rng.normal(scale=0.3, size=(rows, ACT)) + 0.3 * drift, -1, 1).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminals": last & third,
        "timeouts": last & ~third,
    }


def write_hdf5(path: Path, table: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, column in table.items():
            file[name] = column
    return path


def write_parquet(path: Path, table: dict[str, np.ndarray], group: int = 64) -> Path:
    lists = {name: list(column) if column.ndim == 2 else column for name, column in table.items()}
    parquet.write_table(pa.table(lists), path, row_group_size=group)
    return path


def converted(form: str) -> Callable[[Path, dict[str, np.ndarray]], Path]:
    def write(path: Path, table: dict[str, np.ndarray]) -> Path:
        convert(sbac.load(table), path, form)
        return path

    return write


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BLOCK_ROWS", 64)


WRITERS: dict[str, Callable[[Path, dict[str, np.ndarray]], Path]] = {
    "log.hdf5": write_hdf5,
    "log.parquet": write_parquet,
    "log": converted("minari"),
    "log.h5": converted("d3rlpy"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_blocks_are_the_rows_of_the_log(tmp_path: Path, name: str) -> None:
    path = WRITERS[name](tmp_path / name, columns(999))  # whole episodes, as Minari has them
    whole, log = sbac.load(path), sbac.stream(path)
    blocks = [log.block(i) for i in range(len(log.ranges))]
    assert len(log) == len(whole) and len(blocks) > 10 and log.sizes == (OBS, ACT)
    for field in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts", "has_next"):
        joined = np.concatenate([np.asarray(getattr(block, field))[:-1] for block in blocks])
        np.testing.assert_array_equal(joined, getattr(whole, field), err_msg=field)
    following = np.concatenate([block.actions[1:][block.has_next_action[:-1]] for block in blocks])
    np.testing.assert_array_equal(following, whole.actions[np.flatnonzero(whole.has_next_action) + 1])
    found = log.survey
    np.testing.assert_allclose(found.mean, whole.observations.mean(0, dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(found.std, whole.observations.std(0, dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(found.returns, whole.returns, rtol=1e-6, atol=1e-9)
    assert found.rewards == (whole.rewards.min(), whole.rewards.max())
    np.testing.assert_array_equal(found.initial_observations, whole.initial_observations)
    rows = np.linspace(0, len(whole) - 1, streaming.SAMPLE).astype(int)
    np.testing.assert_array_equal(found.sample, whole.observations[rows])


def test_episode_numbers_serve_instead_of_timeouts(tmp_path: Path) -> None:
    table = columns()
    whole = sbac.load(write_hdf5(tmp_path / "flags.hdf5", table))
    del table["timeouts"]
    numbered = write_hdf5(tmp_path / "numbers.hdf5", {**table, "episode": np.arange(ROWS) // 37})
    assert sbac.stream(numbered).survey.hash == sbac.stream(tmp_path / "flags.hdf5").survey.hash
    assert len(sbac.stream(numbered).returns) == len(whole.episodes)
    named = write_parquet(
        tmp_path / "names.parquet", {**table, "episode": np.array([f"e{i // 37}" for i in range(ROWS)])}
    )
    assert sbac.stream(named).survey.hash == sbac.stream(tmp_path / "flags.hdf5").survey.hash
    with pytest.raises(UserError, match=r"neither\.hdf5: timeouts: missing"):
        sbac.stream(write_hdf5(tmp_path / "neither.hdf5", table)).survey.hash  # noqa: B018


def stream_of(path: Path, **options: Any) -> tuple[Stream, Dataset, Any]:
    (run,) = members(find("bc"), "quick", 1, SMALL)
    return Stream(sbac.stream(path, **options), run.config), sbac.load(path), run.config


def contents(table: Any) -> set[tuple[float, ...]]:
    """(s, a, r) of the rows that can be drawn."""
    rows = np.asarray(table.packed)[np.asarray(table.order)[: int(table.places.counts[0, -1])]]
    return {tuple(row) for row in rows[:, : OBS + ACT + 1].tolist()}


def test_a_ring_that_holds_all_has_the_rows_of_the_table_in_memory(tmp_path: Path) -> None:
    stream, data, config = stream_of(write_hdf5(tmp_path / "log.hdf5", columns()))
    ours, theirs = stream.table(0), build_table(data, Scaling.of(data, config))
    assert stream.holds_all and list(stream.cuts(0, 50, 10)) == [(0, 50)]
    assert contents(ours) == contents(theirs) and ours.places.counts.tolist() == theirs.places.counts.tolist()
    known = {tuple(row[: OBS + ACT + 1].tolist()): row for row in np.asarray(theirs.packed)}
    for needs in NEEDS:  # of every kind of row, the batch is that of some rows of the log, with s' and a'
        batch = draw(ours, ours.place(0), jax.random.key(1), 64, needs, ACT)
        for i in range(64):
            s, a, r = (np.asarray(x)[i] for x in (batch.observations, batch.actions, batch.rewards))
            row = known[(*s.tolist(), *a.tolist(), float(r))]
            number = int(np.flatnonzero((np.asarray(theirs.packed) == row).all(1))[0])
            assert needs != "next_action" or data.has_next_action[number]
            assert needs == "row" or data.has_next[number] or data.terminals[number]
            if data.has_next_action[number] and not data.terminals[number]:
                expected = np.asarray(theirs.packed)[number + 1]
                np.testing.assert_array_equal(np.asarray(batch.next_observations)[i], expected[:OBS])
                np.testing.assert_array_equal(np.asarray(batch.next_actions)[i], expected[OBS : OBS + ACT])
    stream.close()


@pytest.mark.parametrize("at_once", [1, 2])
def test_the_ring_moves_through_the_log_and_depends_on_the_step_alone(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one block is replaced at a time or two."""
    path = write_hdf5(tmp_path / "log.hdf5", columns())
    if at_once > 1:
        monkeypatch.setattr("sbac.training.stream.CALM", 4 // at_once)  # the ring has four slots
    stream, data, config = stream_of(path, ring_rows=256, reuse=1.0)
    everything, seen = contents(build_table(data, Scaling.of(data, config))), set[tuple[float, ...]]()
    tables: dict[int, set[tuple[float, ...]]] = {}
    for start, end in stream.cuts(0, 80, 1):
        tables[start] = contents(stream.table(start))
        assert tables[start] <= everything and 150 <= len(tables[start]) <= 256 and end - start <= 4 * at_once
        seen |= tables[start]
    assert seen == everything  # one pass over the log takes 63 steps of 16 rows
    other, _, _ = stream_of(path, ring_rows=256, reuse=1.0)
    assert contents(other.table(48)) == tables[48] != tables[0]
    assert contents(other.table(0)) == tables[0]
    stream.close()
    other.close()


@pytest.mark.parametrize("name", ["log.hdf5", "log.parquet"])
def test_several_readers_fill_the_ring_as_one_does(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = WRITERS[name](tmp_path / name, columns(999))
    found: list[list[tuple[np.ndarray, np.ndarray]]] = []
    for cores in (1, 8):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        stream, _, _ = stream_of(path, ring_rows=256, reuse=1.0)
        tables = [stream.table(step) for step in (0, 4, 40, 41)]
        found.append([(np.asarray(table.order), np.asarray(table.places.counts)) for table in tables])
        found[-1].append((np.asarray(tables[-1].packed), np.asarray(tables[-1].initial)))
        stream.close()
    for one, several in zip(*found, strict=True):
        np.testing.assert_array_equal(one[0], several[0])
        np.testing.assert_array_equal(one[1], several[1])


def test_a_log_that_breaks_off_while_it_is_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _, _ = stream_of(write_hdf5(tmp_path / "log.hdf5", columns()), ring_rows=256, reuse=1.0)

    def broken(self: Any, number: int) -> Dataset:
        raise UserError(f"log.hdf5: block {number} cannot be read")

    monkeypatch.setattr(streaming.StreamedLog, "block", broken)
    with pytest.raises(UserError, match=r"log\.hdf5: block \d+ cannot be read"):
        stream.table(0)
    stream.close()


def train(path: Path, out: Path, reuse: float = 1.0, resume: bool = False) -> sbac.Run:
    log = sbac.stream(path, ring_rows=256, reuse=reuse)
    how: dict[str, Any] = {"evaluate": False, "progress": False, "checkpoint_seconds": 0.0, "resume": resume}
    return sbac.train(log, "bc", seeds=2, steps=24, out=out, **how, **SMALL)


def test_a_broken_run_ends_at_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "log.parquet", columns())
    whole = train(path, tmp_path / "whole")
    real, calls = loop.Training._advance, [0]

    def broken(self: Any, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 11:
            raise KeyboardInterrupt
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "_advance", broken)
        with pytest.raises(KeyboardInterrupt):
            train(path, tmp_path / "broken")
    again = train(path, tmp_path / "broken", resume=True)
    assert whole.config["data"]["streaming"] == {"ring_rows": 256, "reuse": 1.0}
    assert again.metrics == whole.metrics
    for ours, theirs in zip(again.policies, whole.policies, strict=True):
        for name in ours.arrays:
            np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name])
    with pytest.raises(UserError, match="reuse"):
        train(path, tmp_path / "broken", reuse=2.0, resume=True)


def test_batches_are_as_good_as_uniform_ones(tmp_path: Path) -> None:
    """The gradients of a least-squares fit over a pass, on a log that drifts, from a ring of a quarter of it.

    Their mean and variance are those of gradients of uniform batches, within what as many batches can tell.
    """
    rows, size = 16_000, 32
    path = write_hdf5(tmp_path / "log.hdf5", columns(rows))
    stream, data, config = stream_of(path, ring_rows=rows // 4, reuse=4.0)
    uniform = build_table(data, Scaling.of(data, config))

    def gradient(table: Any, key: Any) -> jax.Array:
        batch = draw(table, table.place(0), key, size, "row", ACT)
        error = batch.observations @ jnp.full((OBS, ACT), 0.1) - batch.actions
        return (batch.observations.T @ error / size).ravel()

    several = jax.jit(jax.vmap(gradient, (None, 0)))
    keys = jax.random.split(jax.random.key(0), 4 * rows // size).reshape(-1, 8)
    theirs = np.concatenate([several(uniform, key) for key in keys])
    ours = np.concatenate([several(stream.table(8 * i), key) for i, key in enumerate(keys)])
    stream.close()
    deviation = theirs.std(0)
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 4 * np.sqrt(2 / len(theirs)) * deviation).all()
    np.testing.assert_allclose(ours.std(0), deviation, rtol=0.1)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("")
    with pytest.raises(UserError, match="cannot be streamed"):
        sbac.stream(tmp_path / "log.csv")


def test_a_bad_value_is_named_with_its_block(tmp_path: Path) -> None:
    table = columns()
    table["rewards"][700] = np.nan
    with pytest.raises(UserError, match=r"log\.hdf5: rows 640 to 704: rewards: 1 missing .* in row 60"):
        sbac.train(sbac.stream(write_hdf5(tmp_path / "log.hdf5", table)), "bc", steps=10, evaluate=False)
