"""Logs as people have them: gaps, costs for rewards, no terminals, whole numbers as actions."""

import gzip
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from sbac.cli import main
from sbac.data import Dataset, load
from sbac.data.converting import convert
from sbac.data.inspect import examine
from sbac.data.loading import LogOptions
from sbac.data.sums import terms_of
from sbac.errors import UserError
from sbac.training.train import train

HEAD = "batch,heat,flow,valve,yield,energy,stop"
COLUMNS = {
    "observations": ["heat", "flow"],
    "actions": "valve",
    "rewards": "yield",
    "terminals": "stop",
    "episode": "batch",
}
WORDS = [f"{field}={names if isinstance(names, str) else ','.join(names)}" for field, names in COLUMNS.items()]


def rows_of(count=12, batches=3):
    """The cells of a log by name: `batches` episodes, the first of which ends in a terminal."""
    rng = np.random.default_rng(0)
    cells = {name: rng.uniform(-1, 1, count).round(3).astype(str) for name in ("heat", "flow", "valve", "yield")}
    cells["energy"] = rng.uniform(0, 1, count).round(3).astype(str)
    batch = np.repeat(np.arange(batches), count // batches)
    return {"batch": batch.astype(str), **cells, "stop": np.where(np.arange(count) == 3, "1", "0")}


def write(path, cells, lines_between=""):
    names = HEAD.split(",")
    rows = [",".join(row) for row in zip(*(cells[name].astype(object) for name in names), strict=True)]
    path.write_text(HEAD + "\n" + lines_between + "\n".join(rows) + "\n")
    return path


def with_gaps(name, *rows):
    cells = {key: column.astype(object) for key, column in rows_of().items()}
    cells[name][list(rows)] = ""
    return cells


# --- Gaps ---------------------------------------------------------------------------------------------------------


def test_check_counts_gaps_by_column_with_their_lines(tmp_path, capsys):
    cells = with_gaps("heat", 1, 2, 5, 6, 7, 9)
    cells["yield"][5] = "nan"
    path = write(tmp_path / "log.csv", cells, "\n")  # an empty line, which an editor counts
    findings = examine(path, LogOptions(columns=COLUMNS))
    assert [line.split(";")[0] for line in findings.problems] == [
        "heat: 6 missing or not finite, the first in lines 4, 5, 8, 9, 10 ...",
        "yield: 1 missing or not finite, the first in line 8",
    ]
    assert (findings.problems_found, findings.wrong_rows, findings.rows) == (7, 6, 12)
    with pytest.raises(UserError, match=r"log.csv: heat: 6 missing or not finite, the first in lines 4, .*--missing"):
        load(path, columns=COLUMNS)
    assert main(["data", "check", str(path), "--columns", *WORDS, "--missing", "hold"]) == 0
    told = "note: missing: 7 values filled with the last one of the same episode; 1 of them is a reward\n"
    assert told in capsys.readouterr().out


def test_hold_takes_the_last_value_of_the_same_episode(tmp_path):
    whole = load(write(tmp_path / "whole.csv", rows_of()), columns=COLUMNS)
    data = load(write(tmp_path / "log.csv", with_gaps("heat", 1, 2, 5)), columns=COLUMNS, missing="hold")
    expected = whole.observations.copy()
    expected[[1, 2], 0], expected[5, 0] = expected[0, 0], expected[4, 0]
    np.testing.assert_array_equal(data.observations, expected)
    assert data.notes == ["missing: 3 values filled with the last one of the same episode"]
    with pytest.raises(UserError, match="heat: 1 missing .*line 6; .*stands before them; --missing cut"):
        load(write(tmp_path / "log.csv", with_gaps("heat", 1, 4)), columns=COLUMNS, missing="hold")


def test_cut_leaves_no_transition_across_a_gap(tmp_path):
    whole = load(write(tmp_path / "whole.csv", rows_of()), columns=COLUMNS)
    data = load(write(tmp_path / "log.csv", with_gaps("flow", 1, 6, 8)), columns=COLUMNS, missing="cut")
    kept = np.delete(np.arange(12), [1, 6, 8])
    np.testing.assert_array_equal(data.observations, whole.observations[kept])
    assert kept[data.episodes[:, 0]].tolist() == [0, 2, 4, 7, 9]
    assert kept[data.timeouts].tolist() == [0, 5, 7, 11] and kept[data.terminals].tolist() == [3]
    assert data.notes == ["missing: 3 rows left out, 2 episodes cut there"]
    arrays = {name: column.astype(float) for name, column in whole.arrays().items() if name != "timeouts"}
    arrays["observations"][1] = np.nan
    alone = load(arrays, missing="cut")  # no other column tells where an episode ends
    assert alone.timeouts.nonzero()[0].tolist() == [0, 10]


def test_empty_numbers_of_parquet_and_of_arrays(tmp_path):
    cells = rows_of()
    table = {name: [float(cell) for cell in column] for name, column in cells.items()}
    table["heat"][3] = None  # type: ignore
    table["yield"] = pa.array([1, 2, None, *range(9)])
    parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    told = examine(tmp_path / "log.parquet", LogOptions(columns=COLUMNS)).problems
    assert [line.split(";")[0] for line in told] == [
        "heat: 1 missing or not finite, the first in row 3",
        "yield: 1 missing or not finite, the first in row 2",
    ]
    assert load(tmp_path / "log.parquet", columns=COLUMNS, missing="hold").rewards[:4].tolist() == [1, 2, 2, 0]


def test_words_for_a_missing_value_and_for_none(tmp_path):
    cells = rows_of()
    cells["heat"] = cells["heat"].astype(object)
    cells["heat"][1:6] = ["NULL", "-", " ", "?", "n/a"]
    path = write(tmp_path / "log.csv", cells)
    told = examine(path, LogOptions(columns=COLUMNS)).problems
    assert [line.split(";")[0] for line in told] == ["heat: 5 missing or not finite, the first in lines 3, 4, 5, 6, 7"]
    cells["heat"][7] = "warm"
    with pytest.raises(UserError, match=r"heat: expected numbers, got string \(row 7, line 9: 'warm'\)"):
        load(write(path, cells), columns=COLUMNS)
    table = {name: [float(cell) for cell in column] for name, column in rows_of().items()}
    parquet.write_table(pa.table(table | {"heat": [None, *"bcdefghijkl"]}), tmp_path / "log.parquet")
    with pytest.raises(UserError, match="heat: expected numbers, got string"):
        load(tmp_path / "log.parquet", columns=COLUMNS)


def test_a_table_without_rows(tmp_path):
    (tmp_path / "log.csv").write_text("obs:heat,act:valve,reward,terminal\n")
    told = ["observations: zero rows; expected at least one episode"]
    assert examine(tmp_path / "log.csv").problems == told
    columns = dict.fromkeys(("obs_0", "reward", "terminal", "dose"), pa.array([], pa.float64()))
    parquet.write_table(pa.table(columns | {"action": pa.array([], pa.int64())}), tmp_path / "log.parquet")
    options = LogOptions(columns={"rewards": "-reward", "extras": "dose"})
    assert examine(tmp_path / "log.parquet", options).problems == told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": np.int64(3)}, "discrete actions"),
        ({"cost": np.zeros(0)}, "rewards: 0 rows, but observations has 4"),
        ({"w": np.zeros((4, 2))}, r"extras: expected one number per row in each of \['w'\]"),
    ],
)
def test_arrays_of_shapes_that_nobody_expects(change, message):
    columns = {"observations": np.zeros((4, 1)), "actions": np.zeros((4, 1)), "cost": np.zeros(4), "w": np.zeros(4)}
    with pytest.raises(UserError, match=message):
        load(columns | change, columns={"rewards": "-cost", "extras": "w"})


# --- Rewards ------------------------------------------------------------------------------------------------------


def test_rewards_as_a_sum_of_columns(tmp_path):
    path = write(tmp_path / "log.csv", rows_of())
    gain, energy = (load(path, columns=COLUMNS | {"rewards": name}).rewards for name in ("yield", "energy"))
    for text, expected in [
        ("-energy", -energy),
        ("2*yield-energy", 2 * gain - energy),
        (" 0.5 * yield + 1e-1*energy - 3 ", 0.5 * gain + 0.1 * energy - 3),
        ('"yield" - yield + energy', energy),
    ]:
        data = load(path, columns=COLUMNS | {"rewards": text})
        np.testing.assert_allclose(data.rewards, expected, atol=1e-6)
    arrays = {name: column.astype(float) for name, column in rows_of().items()}
    arrays = {**arrays, "valve": arrays["valve"][:, None]}
    np.testing.assert_allclose(
        load(arrays, columns=COLUMNS | {"rewards": "2*yield-energy"}).rewards, 2 * gain - energy, atol=1e-6
    )


def test_a_column_whose_name_looks_like_a_sum(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("obs_0,action,a-b,a,b\n0,0.5,7,1,2\n1,0.5,8,1,2\n")
    assert load(path, columns={"rewards": "a-b"}).rewards.tolist() == [7, 8]
    assert load(path, columns={"rewards": "a - b"}).rewards.tolist() == [-1, -1]
    assert load(path, columns={"rewards": '-"a-b"'}).rewards.tolist() == [-7, -8]


@pytest.mark.parametrize("text", ["2*", "yield**2", "yield*energy", "yield energy", "__import__('os')", "3", "-none"])
def test_what_is_no_sum(text, tmp_path):
    path = write(tmp_path / "log.csv", rows_of())
    with pytest.raises(UserError, match="no column"):
        load(path, columns=COLUMNS | {"rewards": text})


def test_terms():
    assert terms_of("2*yield [kg/h] - energy") == {"yield [kg/h]": 2, "energy": -1}
    assert terms_of("-1e-3*a + .5") == {"a": -0.001, "": 0.5}
    assert terms_of("a b") == {"a b": 1} and terms_of("a*b") == {}


def test_a_last_row_without_a_reward_is_left_out(tmp_path):
    whole = load(write(tmp_path / "whole.csv", rows_of()), columns=COLUMNS)
    data = load(write(tmp_path / "log.csv", with_gaps("yield", 3, 7, 11)), columns=COLUMNS)
    kept = np.delete(np.arange(12), [3, 7, 11])
    np.testing.assert_array_equal(data.rewards, whole.rewards[kept])
    assert kept[data.terminals].tolist() == [2]  # what follows it is the terminal state
    assert kept[data.timeouts].tolist() == [6, 10]
    assert data.notes == ["rewards: missing in the last row of 3 episodes; these rows are left out"]
    with pytest.raises(UserError, match="yield: 2 missing or not finite, the first in lines 5, 7;"):
        load(write(tmp_path / "log.csv", with_gaps("yield", 3, 5)), columns=COLUMNS)


# --- Terminals and actions ----------------------------------------------------------------------------------------


def test_a_log_without_terminals_is_cut_by_time(tmp_path):
    columns = {field: name for field, name in COLUMNS.items() if field != "terminals"}
    data = load(write(tmp_path / "log.csv", rows_of()), columns=columns)
    assert not data.terminals.any() and data.timeouts.nonzero()[0].tolist() == [3, 7, 11]
    assert data.notes == ["terminals: not given; every episode is taken as cut by time"]
    with pytest.raises(UserError, match="no rewards; .* the file has batch"):
        load(write(tmp_path / "log.csv", rows_of()), columns={k: v for k, v in columns.items() if k != "rewards"})


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "arrays"])
def test_whole_numbers_as_actions(kind, tmp_path):
    def source(values):
        actions = np.arange(24) % values
        arrays = {"observations": np.zeros((24, 1)), "actions": actions[:, None], "rewards": np.zeros(24)}
        table = pa.table({"obs_0": np.zeros(24), "actions": actions, "rewards": np.zeros(24)})
        if kind == "csv":
            path = tmp_path / "log.csv"
            path.write_text("obs_0,actions,rewards\n" + "".join(f"0,{action},0\n" for action in actions))
            return path
        if kind == "parquet":
            parquet.write_table(table, tmp_path / "log.parquet")
            return tmp_path / "log.parquet"
        np.savez(tmp_path / "log.npz", **arrays)
        return arrays if kind == "arrays" else tmp_path / "log.npz"

    with pytest.raises(UserError, match="discrete actions .*--continuous"):
        load(source(10), action_low=0, action_high=10)
    data = load(source(10), action_low=0, action_high=10, continuous=True)
    assert data.actions[:12, 0].tolist() == [*range(10), 0, 1]
    data = load(source(11), action_low=0, action_high=10)
    assert data.actions[:12, 0].tolist() == [*range(11), 0]
    assert "actions: whole numbers, up to 11 values; taken as continuous" in data.notes


def test_whole_numbers_that_csv_cannot_tell_from_others_are_noted(tmp_path):
    rows = np.arange(8.0)[:, None]
    log: dict[str, Any] = {"observations": rows, "actions": rows % 2, "rewards": rows[:, 0]}
    log["terminals"] = rows[:, 0] == 7
    assert convert(Dataset(**log), tmp_path / "log.csv").notes[0].endswith("read it with --continuous")
    assert load(tmp_path / "log.csv", continuous=True).hash == Dataset(**log).hash
    log["actions"] = rows % 2 / 2
    assert not convert(Dataset(**log), tmp_path / "half.csv").notes


def test_notes_stay_with_a_part_and_are_told(tmp_path, capsys):
    path = write(tmp_path / "log.csv", rows_of())
    columns = {field: name for field, name in COLUMNS.items() if field != "terminals"}
    data = load(path, columns=columns)
    assert data.split(0.5)[0].notes == data.notes != [] and Dataset(**data.arrays()).notes == []
    words = [word for word in WORDS if not word.startswith("terminals")]
    assert main(["data", "info", str(path), "--columns", *words]) == 0
    told = capsys.readouterr()
    assert told.err == f"note: {data.notes[0]}\n" and data.notes[0] in told.out


# --- Several files, keys and times --------------------------------------------------------------------------------


def test_several_files_are_one_log_and_no_episode_goes_on(tmp_path):
    cells = rows_of()
    cells["stop"][:] = "0"
    cells["batch"][:] = "7"  # the same in both files
    whole = load(write(tmp_path / "whole.csv", cells), columns=COLUMNS)
    days = tmp_path / "days"
    days.mkdir()
    for name, rows in (("day1.csv", slice(0, 5)), ("day2.csv", slice(5, 12))):
        write(days / name, {key: column[rows] for key, column in cells.items()})
    sources = [[days / "day1.csv", str(days / "day2.csv")], days, str(days / "day?.csv")]
    for source in sources:
        data = load(source, columns=COLUMNS)
        np.testing.assert_array_equal(data.observations, whole.observations)
        assert data.episodes.tolist() == [[0, 5], [5, 12]] and data.columns == whole.columns
        assert data.name == "day1.csv and 1 more"
    for source, message in (([], "at least one"), ([3], "names of files"), (str(days / "x*.csv"), "no file matches")):
        with pytest.raises(UserError, match=message):
            load(source, columns=COLUMNS)  # type: ignore
    write(days / "day2.csv", {key: column[6:] for key, column in with_gaps("heat", 7).items()})
    assert load(days, columns=COLUMNS, missing="hold").notes[1:] == [
        "day2.csv: missing: 1 value filled with the last one of the same episode"
    ]
    with pytest.raises(UserError, match="day2.csv: its columns are not those of day1.csv"):
        (days / "day2.csv").write_text("obs_0,obs_1,action,reward\n0,0,0.5,1\n")
        load([write_usual(days / "day1.csv"), days / "day2.csv"])


def write_usual(path):
    path.write_text("obs:b,obs:c,act,reward\n0,0,0.5,1\n")
    return path


def test_check_takes_several_files(tmp_path, capsys):
    write(tmp_path / "day1.csv", with_gaps("heat", 2))
    write(tmp_path / "day2.csv", with_gaps("flow", 3))
    paths = [str(tmp_path / "day1.csv"), str(tmp_path / "day2.csv")]
    assert main(["data", "check", *paths, "--columns", *WORDS]) == 2
    told = capsys.readouterr()
    assert f"{paths[0]}: heat: 1 missing or not finite, the first in line 4" in told.out
    assert f"{paths[1]}: flow: 1 missing or not finite, the first in line 5" in told.out
    assert "2 problems found in 2 of 24 rows" in told.err


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "arrays"])
def test_several_columns_tell_an_episode(kind, tmp_path):
    device, day = np.array([1, 1, 1, 2, 2, 2]), np.array([5, 5, 6, 6, 7, 7])
    arrays = {"observations": np.zeros((6, 1)), "actions": np.zeros((6, 1)), "rewards": np.zeros(6)}
    arrays |= {"device": device, "day": day}
    table = pa.table({name: column.ravel() for name, column in arrays.items()})
    np.savez(tmp_path / "log.npz", **arrays)
    parquet.write_table(table, tmp_path / "log.parquet")
    lines = [",".join(map(str, row)) for row in zip(*(arrays[name].ravel() for name in arrays), strict=True)]
    (tmp_path / "log.csv").write_text(",".join(arrays) + "\n" + "\n".join(lines).replace(",1,", ",one,") + "\n")
    data = load(arrays if kind == "arrays" else tmp_path / f"log.{kind}", columns={"episode": ["device", "day"]})
    assert data.episodes.tolist() == [[0, 2], [2, 3], [3, 4], [4, 6]]


CLOCK = ["2024-01-01 00:00:00", "2024-01-01 00:01:00", "2024-01-01 00:02:00", "2024-01-01 00:30:00"]


@pytest.mark.parametrize("times", [["0", "1", "2", "6"], ["0.0", "1.5", "3.0", "10.0"], CLOCK])
def test_rows_are_sorted_by_time_and_cut_where_it_jumps(times, tmp_path):
    rows = [("a", 0), ("b", 1), ("a", 3), ("b", 0), ("a", 1), ("a", 2), ("b", 2)]
    lines = [f"{pump},{times[t]},{t},0.5,{t}" for pump, t in rows]
    (tmp_path / "log.csv").write_text("pump,when,obs_0,action,reward\n" + "\n".join(lines) + "\n")
    data = load(tmp_path / "log.csv", columns={"episode": "pump", "time": "when"})
    assert data.rewards.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert data.episodes.tolist() == [[0, 3], [3, 4], [4, 7]] and not data.has_next[[2, 3, 6]].any()
    assert data.notes[1:] == [
        "time: rows sorted within their episodes",
        "time: 1 jump of more than 3 usual steps; episodes cut there",
    ]
    lines[4] = lines[4].replace(",0.5,", ",,")
    (tmp_path / "log.csv").write_text("pump,when,obs_0,action,reward\n" + "\n".join(lines) + "\n")
    with pytest.raises(UserError, match="action: 1 missing or not finite, the first in line 6;"):
        load(tmp_path / "log.csv", columns={"episode": "pump", "time": "when"})


def test_times_without_episodes_and_missing_ones(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("t,obs_0,action,reward,terminal\n1,1,.5,1,0\n0,0,.5,0,0\n2,2,.5,2,1\n0,3,.5,3,0\n1,4,.5,4,0\n")
    assert load(path, columns={"time": "t"}).rewards.tolist() == [0, 1, 2, 3, 4]
    path.write_text("t,obs_0,action,reward\n1,1,.5,1\n,0,.5,0\n")
    with pytest.raises(UserError, match=r"log.csv: time: row 1 has none"):
        load(path, columns={"time": "t"})


def test_three_files_of_two_devices_are_the_clean_log(tmp_path):
    """Rows that came late, and clocks that wander by less than a step: the same episodes, and the same policy."""
    rng = np.random.default_rng(0)
    days, devices, steps = 3, ("north", "south"), 20
    head = "device,day,when,obs_0,obs_1,action,reward"
    cells = rng.uniform(-1, 1, (days, len(devices), steps, 4)).round(4)
    clean, kept = [head], {"episode": ["device", "day"], "time": "when"}
    for day in range(days):
        messy: list[tuple[float, str]] = []
        for number, device in enumerate(devices):
            numbers = [",".join(map(str, row)) for row in cells[day, number]]
            clean += [f"{device},{day},{60 * step},{row}" for step, row in enumerate(numbers)]
            clock = 60 * np.arange(steps) + rng.uniform(0, 59, steps).round(1)
            arrived = np.arange(steps) + rng.uniform(0, 3, steps) + 3 * number  # a row is up to three rows late
            lines = [f"{device},{day},{when},{row}" for when, row in zip(clock, numbers, strict=True)]
            messy += zip(arrived, lines, strict=True)
        lines = [line for _, line in sorted(messy)]
        (tmp_path / f"day{day}.csv").write_text("\n".join([head, *lines]) + "\n")
    (tmp_path / "clean.csv").write_text("\n".join(clean) + "\n")
    whole = load(tmp_path / "clean.csv", columns=kept)
    data = load(str(tmp_path / "day*.csv"), columns=kept)
    assert data.notes[:3] == [
        "3 files read as one log: day0.csv, day1.csv, day2.csv",
        "terminals: not given; every episode is taken as cut by time",
        "time: rows sorted within their episodes",
    ]
    assert whole.notes == data.notes[1:2] and all("taken as equal" in note for note in data.notes[3:])
    assert data.hash == whole.hash and data.episodes.tolist() == whole.episodes.tolist()
    policies = [
        train(log, "bc", steps=3, hidden=[4], batch_size=8, evaluate=False).policies[0] for log in (whole, data)
    ]
    for name, array in policies[0].arrays.items():
        np.testing.assert_array_equal(policies[1].arrays[name], array, err_msg=name)


def test_unequal_steps_are_told(tmp_path):
    path = tmp_path / "log.csv"
    times = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    path.write_text("t,obs_0,action,reward\n" + "".join(f"{t},{t},.5,1\n" for t in times))
    data = load(path, columns={"time": "t"})
    assert data.notes[1:] == [
        "time: 1 of 9 steps differ by more than half from the usual one, 1; all are taken as equal"
    ]
    path.write_text("t,obs_0,action,reward\n" + "".join(f"{t + 0.2 * (t % 2)},{t},.5,1\n" for t in range(10)))
    assert load(path, columns={"time": "t"}).notes[1:] == []


@pytest.mark.parametrize("key", [None, "device"])
def test_devices_that_lie_mixed_are_recognised(key, tmp_path):
    """A stored next state that is a later row's, and not the next one's: without their column, they are refused."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3, 21)).round(3)
    lines = [
        f"{device},{states[device, step]},{states[device, step + 1]},0.5,1"
        for step in range(20)
        for device in rng.permutation(3)
    ]
    path = tmp_path / "log.csv"
    path.write_text("device,obs_0,next_obs_0,action,reward\n" + "\n".join(lines) + "\n")
    if key is None:
        with pytest.raises(UserError, match=r"log.csv: the next state of most rows is that of a later row: .*episode="):
            load(path)
        return
    rows = [line.split(",", 1) for line in lines]
    timed = [f"{device},{number // 3},{rest}" for number, (device, rest) in enumerate(rows)]
    path.write_text("device,t,obs_0,next_obs_0,action,reward\n" + "\n".join(timed) + "\n")
    assert np.diff(load(path, columns={"episode": "device", "time": "t"}).episodes).ravel().tolist() == [20, 20, 20]


# --- Ways to write a table ----------------------------------------------------------------------------------------


def encoded(text, style):
    head, rows = text.split("\n", 1)
    if style in ("semicolons", "decimal commas"):
        head, rows = head.replace(",", ";"), rows.replace(",", ";")
    if style == "decimal commas":
        rows = rows.replace(".", ",")
    if style == "tabs":
        head, rows = head.replace(",", "\t"), rows.replace(",", "\t")
    if style == "quoted":
        head = head.replace("batch", '"batch;of;the;day;and;the;week"')
    mark = b"\xef\xbb\xbf" if style == "mark" else b""
    whole = mark + f"{head}\n{rows}".encode()
    return gzip.compress(whole) if style == "gzip" else whole


@pytest.mark.parametrize("style", ["semicolons", "decimal commas", "tabs", "quoted", "mark", "gzip", "capitals"])
def test_tables_are_read_as_they_are_written(style, tmp_path):
    path = write(tmp_path / "plain.csv", rows_of())
    expected, columns = load(path, columns=COLUMNS).hash, COLUMNS
    if style == "quoted":
        columns = COLUMNS | {"episode": "batch;of;the;day;and;the;week"}
    name = {"gzip": "log.csv.gz", "capitals": "LOG.CSV"}.get(style, "log.csv")
    (tmp_path / name).write_bytes(encoded(path.read_text(), style))
    assert load(tmp_path / name, columns=columns).hash == expected
    (tmp_path / name).write_bytes(encoded(write(path, with_gaps("heat", 2, 5)).read_text(), style))
    with pytest.raises(UserError, match="heat: 2 missing or not finite, the first in lines 4, 7;"):
        load(tmp_path / name, columns=columns)


def test_a_gzipped_table_is_written_and_a_damaged_one_refused(tmp_path):
    data = load(write(tmp_path / "log.csv", rows_of()), columns=COLUMNS)
    convert(data, tmp_path / "log.csv.gz")
    assert load(tmp_path / "log.csv.gz").hash == data.hash
    (tmp_path / "log.csv.gz").write_bytes((tmp_path / "log.csv.gz").read_bytes()[:-20])
    with pytest.raises(UserError, match="log.csv.gz: not a readable"):
        load(tmp_path / "log.csv.gz")
    (tmp_path / "log.csv.gz").write_bytes(b"a,b\n")
    with pytest.raises(UserError, match="log.csv.gz: not a readable"):
        load(tmp_path / "log.csv.gz")
