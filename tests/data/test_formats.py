"""Every format, written and read, gives the same transitions."""

import json
import shutil
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

import sbac
from sbac.data import Dataset, formats, load
from sbac.data.converting import convert
from sbac.data.formats.log import Column, Format, Written, is_file, log_of_arrays
from sbac.data.inspect import examine
from sbac.errors import UserError
from tests.data.logs import make_log


def write_npz(path, log):
    np.savez(path / "log.npz", **log)
    return path / "log.npz"


def write_compressed(path, log):
    np.savez_compressed(path / "log.npz", **log)
    return path / "log.npz"


def write_saved(path, log):
    Dataset(**log).save(path / "log.npz")
    return path / "log.npz"


def write_folder(path, log):
    for name, column in log.items():
        np.save(path / f"{name}.npy", column)
    return path


def write_hdf5(path, log):
    with h5py.File(path / "log.hdf5", "w") as file:
        for name, column in log.items():
            file.create_dataset(name, data=column, compression="gzip" if name == "observations" else None)
        file.create_dataset("infos/qpos", data=np.zeros((len(log["actions"]), 3)))
        file["metadata/algorithm"] = "SAC"
    return path / "log.hdf5"


def listed(log):
    return {name: list(column) if column.ndim == 2 else column for name, column in log.items()}


def numbered(log):
    columns = {}
    for name, column in log.items():
        parts = {f"{name}_{i}": column[:, i] for i in range(column.shape[1])} if column.ndim == 2 else {name: column}
        columns |= dict(reversed(parts.items()))  # the order in the file does not matter
    return columns


def write_parquet_lists(path, log):
    parquet.write_table(pa.table(listed(log)), path / "log.parquet")
    return path / "log.parquet"


def write_parquet_numbered(path, log):
    parquet.write_table(pa.table(numbered(log)), path / "log.parquet", row_group_size=7)
    return path / "log.parquet"


def write_csv(path, log):
    csv.write_csv(pa.table(numbered(log)), path / "log.csv")
    return path / "log.csv"


def write_minari(path, log, **about):
    data = Dataset(**log)
    (path / "data").mkdir(parents=True)
    box = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
    with h5py.File(path / "data" / "main_data.hdf5", "w") as file:
        for i, (start, stop) in enumerate(data.episodes):
            group = file.create_group(f"episode_{i}")
            rows = slice(start, stop)
            final = data.next_observations[stop - 1 : stop]
            group["observations"] = np.concatenate([data.observations[rows], final])
            group["actions"], group["rewards"] = data.actions[rows], data.rewards[rows]
            group["terminations"], group["truncations"] = data.terminals[rows], data.timeouts[rows]
    metadata = {"dataset_id": "test/log-v0", "action_space": json.dumps(box), "data_format": "hdf5"} | about
    (path / "data" / "metadata.json").write_text(json.dumps(metadata))
    return path


WRITERS = [
    write_npz,
    write_compressed,
    write_saved,
    write_folder,
    write_hdf5,
    write_parquet_lists,
    write_parquet_numbered,
    write_csv,
    write_minari,
]


@pytest.mark.parametrize("write", WRITERS)
def test_round_trip_with_stored_next_states(write, log, tmp_path):
    same(load(write(tmp_path, log)), Dataset(**log))


@pytest.mark.parametrize("write", [writer for writer in WRITERS if writer is not write_minari])
def test_round_trip_without_stored_next_states(write, plain, tmp_path):
    same(load(str(write(tmp_path, plain))), Dataset(**plain))


def same(read, expected):
    for name in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts"):
        np.testing.assert_array_equal(getattr(read, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(read.has_next, expected.has_next)
    np.testing.assert_array_equal(read.episodes, expected.episodes)
    assert read.hash == expected.hash


def test_mapping_and_dataset_are_sources_too(plain):
    data = load(plain)
    assert load(data) is data
    same(data, Dataset(**plain))


def test_saved_file_keeps_what_is_known(plain, tmp_path):
    plain["actions"] = plain["actions"] * np.float32(2.0)
    name = "hopper-medium-made"
    data = Dataset(**plain, action_low=-2, action_high=2, name=name, kind="made", task=name)
    data.save(tmp_path / "deep" / "x.npz")
    again = load(tmp_path / "deep" / "x.npz")
    assert (again.name, again.kind, again.task) == (name, "made", name)
    assert again.hash == data.hash and again.score == data.score
    with pytest.raises(UserError, match=r"\.npz"):
        data.save(tmp_path / "x.hdf5")


# --- D4RL ---


def test_v0_and_v2_of_the_same_data_agree(tmp_path):
    """v2 flags time limits; v0 leaves them out and the task's horizon tells them."""
    log = make_log([1000, 300, 1000, 1000, 250], ["timeout", "terminal", "timeout", "timeout", "nothing"])
    del log["next_observations"]
    unflagged = {name: column for name, column in log.items() if name != "timeouts"}
    for name, columns in {"hopper_medium-v2": log, "hopper_medium": unflagged}.items():
        with h5py.File(tmp_path / f"{name}.hdf5", "w") as file:
            file.update(columns)
    v2, v0 = load("hopper-medium-v2"), load("hopper-medium-v0")
    assert v2.kind == v0.kind == "D4RL"
    assert (v2.task, v0.task) == ("hopper-medium-v2", "hopper-medium-v0")
    same(v0, v2)
    same(v0, Dataset(**log))
    assert v0.score == v2.score is not None
    # by its file name alone, and under any name with the task or the horizon given
    assert load(tmp_path / "hopper_medium.hdf5").task == "hopper-medium-v0"
    (tmp_path / "hopper_medium.hdf5").rename(tmp_path / "mine.h5")
    same(load(tmp_path / "mine.h5", task="hopper-medium-v2"), v2)
    same(load(tmp_path / "mine.h5", horizon=1000), v2)
    with pytest.raises(UserError, match=r"no timeouts, and 2250 rows .* horizon="):
        load(tmp_path / "mine.h5")


def test_v0_with_stored_next_states_tells_its_episodes_by_them(tmp_path):
    log = make_log([400, 300, 1000, 800], ["timeout", "terminal", "timeout", "nothing"])
    expected = Dataset(**log)
    del log["timeouts"]
    same(load(write_hdf5(tmp_path, log)), expected)
    same(load(tmp_path / "log.hdf5", task="hopper-medium-v2"), expected)


@pytest.mark.parametrize("file", ["hopper_medium_replay-v2.hdf5", "hopper-medium-replay-v2.hdf5"])
def test_d4rl_files_are_found_in_the_data_folder(file, plain, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    write_hdf5(tmp_path, plain).rename(folder / file)
    with pytest.raises(UserError, match="hopper_medium_replay-v2.hdf5.*`sbac data make hopper-medium-replay-made"):
        load("hopper-medium-replay-v2")
    monkeypatch.setenv("SBAC_DATA", str(folder))
    data = load("hopper-medium-replay-v2")
    assert (data.name, data.kind, data.task) == ("hopper-medium-replay-v2", "D4RL", "hopper-medium-replay-v2")


def test_made_data_is_found_in_the_data_folder(plain, tmp_path):
    with pytest.raises(UserError, match="sbac data make hopper-medium-made"):
        load("hopper-medium-made")
    Dataset(**plain).save(tmp_path / "data" / "hopper-medium-made.npz")
    data = load("hopper-medium-made")
    assert (data.name, data.kind, data.task) == ("hopper-medium-made", "made", "hopper-medium-made")


def test_a_chunk_of_very_many_rows_is_expanded_once(tmp_path, monkeypatch):
    """Read in blocks of rows, such a chunk would be expanded for each of them."""
    from sbac.data.formats import hdf5

    monkeypatch.setattr(hdf5, "BLOCK", 16)
    reads: list[tuple[int, int]] = []
    plain = hdf5.rows_of
    monkeypatch.setattr(hdf5, "rows_of", lambda d, start, stop: (reads.append((start, stop)), plain(d, start, stop))[1])
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        tall = file.create_dataset("tall", data=np.arange(100), chunks=(40,), compression="gzip")
        read = hdf5.reader(tall)
        blocks = [read(start, min(start + 16, 100)) for start in range(0, 100, 16)]
    np.testing.assert_array_equal(np.concatenate(blocks), np.arange(100))
    assert len(reads) < len(blocks) and max(stop - start for start, stop in reads) <= 80


# --- Minari ---


def test_door_human_agrees_with_minari(minari_root):
    minari = pytest.importorskip("minari")
    theirs = minari.load_dataset("D4RL/door/human-v2")
    data = load("D4RL/door/human-v2")
    assert len(data.episodes) == theirs.total_episodes == 25
    assert len(data) == theirs.total_steps == 6729
    assert data.returns.mean() == pytest.approx(802.8, abs=0.05)
    assert (data.kind, data.task, data.name) == ("Minari", "door-human-v1", "D4RL/door/human-v2")
    for (start, stop), episode in zip(data.episodes, theirs.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(data.observations[start:stop], episode.observations[:-1].astype(np.float32))
        np.testing.assert_array_equal(data.next_observations[start:stop], episode.observations[1:].astype(np.float32))
        np.testing.assert_array_equal(data.actions[start:stop], episode.actions)
        np.testing.assert_array_equal(data.rewards[start:stop], episode.rewards.astype(np.float32))
        assert not episode.terminations.any() and data.timeouts[stop - 1]
    assert data.has_next.all() and data.has_next_action.sum() == 6729 - 25


def test_minari_folder_and_its_file_are_the_same_dataset(minari_root):
    folder = minari_root / "D4RL" / "door" / "human-v2"
    assert load(folder).hash == load(folder / "data" / "main_data.hdf5").hash == load("D4RL/door/human-v2").hash


def test_minari_termination_outranks_truncation(log, tmp_path):
    folder = write_minari(tmp_path / "m", log)
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        truncations = file["episode_0/truncations"]
        assert isinstance(truncations, h5py.Dataset)
        truncations[-1] = True
    assert load(folder).terminals[9]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_minari_arrow_data_goes_through_minari(log, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    from gymnasium.spaces import Box

    data = Dataset(**log)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    buffers = []
    for i, (start, stop) in enumerate(data.episodes):
        rows, final = slice(start, stop), data.next_observations[stop - 1 : stop]
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=i,
                observations=list(np.concatenate([data.observations[rows], final])),
                actions=list(data.actions[rows]),
                rewards=list(data.rewards[rows]),
                terminations=list(data.terminals[rows]),
                truncations=list(data.timeouts[rows]),
            )
        )
    minari.create_dataset_from_buffers(
        "test/log-v0",
        buffers,
        action_space=Box(-1, 1, (2,), np.float32),
        observation_space=Box(-np.inf, np.inf, (4,), np.float32),
        data_format="arrow",
        algorithm_name="none",
        author="nobody",
        author_email="nobody@example.org",
        code_permalink="none",
        description="none",
    )
    same(load("test/log-v0"), data)
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(UserError, match=r"sbac\[minari\]"):
        load("test/log-v0")


@pytest.mark.parametrize(
    ("space", "message"), [({"type": "Discrete", "n": 4}, "Discrete"), ({"type": "Dict", "subspaces": {}}, "Dict")]
)
def test_minari_spaces_other_than_boxes_are_refused(space, message, log, tmp_path):
    with pytest.raises(UserError, match=f"action_space is {message}"):
        load(write_minari(tmp_path / "m", log, action_space=json.dumps(space)))


def test_what_minari_itself_cannot_read_is_said_in_a_line(log, tmp_path):
    with pytest.raises(UserError, match="minari cannot read it") as error:
        load(write_minari(tmp_path / "m", log, data_format="clay tablets"))
    assert "\n" not in str(error.value)


def test_minari_bounds_are_those_of_its_box(log, tmp_path):
    box = {"type": "Box", "low": [-2.0, float("-inf")], "high": [2.0, float("inf")]}
    data = load(write_minari(tmp_path / "m", log, action_space=json.dumps(box)))
    assert data.action_low.tolist() == [-2, -1] and data.action_high.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({"env_spec": {"id": "Pendulum-v1", "kwargs": {}}}, "Pendulum-v1"),
        (
            {"env_spec": {"id": "Pendulum-v1"}, "eval_env_spec": {"id": "MountainCarContinuous-v0"}},
            "MountainCarContinuous-v0",
        ),
        ({"env_spec": {"id": "evil:Pendulum-v1"}}, None),
        ({"env_spec": {"id": "Pendulum-v1", "kwargs": {"g": 9.8}}}, None),
        ({"env_spec": {"id": 7}}, None),
        ({"env_spec": 7}, None),
        ({}, None),
    ],
)
def test_minari_tells_its_evaluation_environment(specs, expected, log, tmp_path):
    about = {key: json.dumps(spec) for key, spec in specs.items()}
    assert load(write_minari(tmp_path / "m", log, **about)).environment == expected


def test_absent_minari_id_says_how_to_get_it():
    with pytest.raises(UserError, match=r"minari download D4RL/pen/human-v2"):
        load("D4RL/pen/human-v2")


# --- tables ---


def test_column_mapping(plain, tmp_path):
    columns = {"s": list(plain["observations"]), "a_x": plain["actions"][:, 0], "a_y": plain["actions"][:, 1]}
    columns |= {"r": plain["rewards"], "failed": plain["terminals"], "cut": plain["timeouts"].astype(np.int8)}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    mapping = {"observations": "s", "actions": ["a_x", "a_y"], "rewards": "r", "terminals": "failed", "timeouts": "cut"}
    same(load(tmp_path / "t.parquet", columns=mapping), Dataset(**plain))
    with pytest.raises(UserError, match=r"columns\['rewards'\]: no column 'reward'; the file has a_x, a_y, cut"):
        load(tmp_path / "t.parquet", columns=mapping | {"rewards": "reward"})
    with pytest.raises(UserError, match="did you mean 'rewards'"):
        load(tmp_path / "t.parquet", columns=mapping | {"reward": "r"})
    with pytest.raises(UserError, match="no observations and no actions"):
        load(tmp_path / "t.parquet")


def test_other_names_and_an_episode_column(plain, tmp_path):
    episode = plain["observations"][:, 0].astype(int)
    columns = {f"obs_{i + 1}": plain["observations"][:, i] for i in range(4)}
    columns |= {f"action_{i}": plain["actions"][:, i] for i in range(2)}
    columns |= {"reward": plain["rewards"], "terminated": plain["terminals"], "episode_id": episode}
    csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    same(load(tmp_path / "t.csv"), Dataset(**plain))


def test_a_single_float_action_column_is_a_vector_of_one(plain, tmp_path):
    columns = numbered(plain) | {"action": plain["actions"][:, 0]}
    del columns["actions_0"], columns["actions_1"]
    csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    assert load(tmp_path / "t.csv").actions.shape == (50, 1)
    columns["action"] = np.arange(50) % 4
    csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    with pytest.raises(UserError, match="discrete actions"):
        load(tmp_path / "t.csv")


def test_ambiguous_and_broken_tables_are_named(plain, tmp_path):
    def refused(columns, message):
        csv.write_csv(pa.table(columns), tmp_path / "t.csv")
        with pytest.raises(UserError, match=message):
            load(tmp_path / "t.csv")

    columns = numbered(plain)
    refused(columns | {"reward": plain["rewards"]}, "both rewards and reward could be rewards")
    refused({k: v for k, v in columns.items() if k != "observations_2"}, "observations_2 is missing")
    words = ["0.5"] * 50
    words[17] = "n/a?"
    refused(columns | {"rewards": words}, r"rewards: expected numbers, got string \(row 17, line 19: 'n/a\?'\)")
    uneven = [[1.0]] * 49 + [[1.0, 2.0]]
    parquet.write_table(pa.table(listed(plain) | {"observations": uneven}), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="observations: row 49 has 2 numbers, but row 0 has 1"):
        load(tmp_path / "t.parquet")
    rewards = plain["rewards"].tolist()
    rewards[5] = None
    parquet.write_table(pa.table(listed(plain) | {"rewards": rewards}), tmp_path / "t.parquet")
    with pytest.raises(
        UserError, match="rewards: 1 missing or not finite, the first in row 5; expected finite numbers"
    ):
        load(tmp_path / "t.parquet")


def test_lines_of_a_csv_are_named(tmp_path):
    """Empty lines are no rows, but they are lines."""
    head, row = "obs,action,reward,terminal\n", "0.5,0.25,1,0\n"
    path = tmp_path / "log.csv"
    path.write_text(f"{head}{row}\n\n{row}0.5,,1,0\n")
    with pytest.raises(UserError, match="action: 1 missing or not finite, the first in line 6;"):
        load(path)
    path.write_text(f"\n{head}{row * 3}\n0.5,0.25,high,0\n".replace("\n", "\r"))
    with pytest.raises(UserError, match=r"reward: expected numbers, got string \(row 3, line 7: 'high'\)"):
        load(path)


# --- a new format ---


def test_an_archive_of_many_arrays_is_opened_a_few_times(tmp_path, monkeypatch):
    opened = []
    original = zipfile.ZipFile.__init__
    monkeypatch.setattr(zipfile.ZipFile, "__init__", lambda *args, **options: opened.append(original(*args, **options)))
    columns = {f"obs_{i}": np.zeros(3) for i in range(40)} | {"actions": np.zeros((3, 1)), "rewards": np.zeros(3)}
    write_npz(tmp_path, columns)
    assert load(tmp_path / "log.npz").observations.shape == (3, 40) and len(opened) < 10


def test_a_format_is_a_file_and_a_line(plain, tmp_path, monkeypatch):
    """Rows of text: read, checked, streamed and converted by the line in the registry."""
    names = {"observations": ["observations"], "actions": ["actions"], "rewards": ["rewards"]}
    names |= {"terminals": ["terminals"], "timeouts": ["timeouts"]}
    widths = {"observations": 4, "actions": 2}

    def open_text(path, columns):
        table = np.loadtxt(path)
        declared = {name: Column((len(table), widths[name]), table.dtype) for name in widths}
        declared |= {name: Column((len(table),), table.dtype) for name in names if name not in widths}
        stops = dict(zip(names, np.cumsum([widths.get(name, 1) for name in names]), strict=True))

        @contextmanager
        def opened(wanted):
            def rows(name):
                first = stops[name] - widths.get(name, 1)
                return lambda start, stop: table[start:stop, first : stops[name]].reshape(stop - start, -1).squeeze()

            yield {name: rows(name) for name in wanted}

        return log_of_arrays(path, path.stat().st_size, names, declared, opened, {})

    def write_text(data, path):
        np.savetxt(path, np.column_stack([*data.arrays().values()]), fmt="%.9g")
        return Written(len(data))

    text = Format(lambda path: is_file(path, ".txt"), open_text, write_text, suffixes=(".txt",), streams=True)
    monkeypatch.setitem(formats.REGISTRY, "text", f"{__name__}:TEXT")
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(TEXT=text))
    data = Dataset(**plain)
    assert convert(data, tmp_path / "log.txt") == (50, ())
    same(load(tmp_path / "log.txt"), data)
    assert examine(tmp_path / "log.txt").problems == [] and len(sbac.stream(tmp_path / "log.txt").returns) == 5
    with pytest.raises(UserError, match=r"unknown kind of file; expected .*, \.txt or a folder"):
        load(convert(data, tmp_path / "log.csv") and (tmp_path / "log.csv").rename(tmp_path / "log.odd"))


@pytest.mark.parametrize("name", formats.REGISTRY)
def test_every_line_of_the_registry_is_a_format(name):
    assert isinstance(formats.find(name), Format)


# --- names ---


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.npz", "nowhere.npz: no such file"),
        ("../nowhere.hdf5", "../nowhere.hdf5: no such file"),
        (Path("nowhere"), "nowhere: no such file"),
        ("../../etc/passwd-v2", "no such file"),
        ("hoper-demo", "did you mean 'hopper-demo'"),
        ("hopper-medium-mad", "did you mean 'hopper-medium-made'"),
        ("hopper-medium-v3", "did you mean 'hopper-medium-v2'"),
        ("pen-human-v2", "did you mean 'pen-human-v1'"),
        ("\0", "not a path|unknown dataset"),
        ("x" * 5000, "x"),
        ("", "expected a Minari dataset"),
    ],
)
def test_unknown_sources_are_named(source, message):
    with pytest.raises(UserError, match=message) as caught:
        load(source)
    assert "\n" not in str(caught.value)


def test_files_of_no_known_kind_are_refused(tmp_path):
    (tmp_path / "log.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(UserError, match=r"log.pkl: unknown kind of file; expected .npz"):
        load(tmp_path / "log.pkl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: expected a Minari dataset"):
        load(tmp_path / "empty")


def test_the_embedded_dataset():
    data = load("hopper-demo")
    assert (data.kind, data.task) == ("embedded", "hopper-demo")
    assert data.observations.shape[1] == 11 and data.actions.shape[1] == 3


def test_a_copied_minari_dataset_needs_no_minari(minari_root, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    shutil.copytree(minari_root / "D4RL" / "door" / "human-v2", tmp_path / "mine")
    assert len(load(tmp_path / "mine")) == 6729
