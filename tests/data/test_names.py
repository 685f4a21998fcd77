"""What a file calls its columns stays with the data, the run and the policy."""

import json

import numpy as np
import pytest

import sbac
from sbac.cli import main
from sbac.data import Dataset, load
from sbac.data.converting import convert
from sbac.data.inspect import examine, info
from sbac.errors import UserError

CSV = """patient,glucose [mg/dl],weight,dose,gain,died
a,100,70,0.5,1,0
a,120,70.5,-0.5,2,0
a,90,71,0.25,3,1
b,130,80,0.125,1,0
b,135,81,-1,2,0
"""
COLUMNS = {
    "observations": ["glucose [mg/dl]", "weight"],
    "actions": "dose",
    "rewards": "gain",
    "terminals": "died",
    "episode": "patient",
}
NAMED = {"observations": ["glucose [mg/dl]", "weight"], "actions": ["dose"]}


class Frame:
    """What a DataFrame of pandas and of polars have in common."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def columns(self):
        return [*self._columns]

    def __getitem__(self, name):
        return self._columns[name]


@pytest.fixture
def ward(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text(CSV)
    return path


def frame():
    head, *rows = [line.split(",") for line in CSV.splitlines()]
    columns = dict(zip(head, zip(*rows, strict=True), strict=True))
    return Frame({name: np.array(v) if name == "patient" else np.array(v, float) for name, v in columns.items()})


@pytest.mark.parametrize("name", ["w.npz", "w.hdf5", "w.parquet", "w.csv", "folder"])
def test_names_survive_the_formats_and_are_no_part_of_the_hash(name, ward, tmp_path):
    data = load(ward, columns=COLUMNS)
    assert data.columns == NAMED and data.split(0.5)[0].columns == NAMED
    convert(data, tmp_path / name, "npy" if name == "folder" else None)
    again = load(tmp_path / name)
    assert again.columns == NAMED and again.hash == data.hash
    arrays = data.arrays()
    assert Dataset(**arrays).hash == data.hash and Dataset(**arrays).columns["observations"] == ["o0", "o1"]
    if name in ("w.parquet", "w.csv"):
        chosen = load(tmp_path / name, columns={"actions": "rewards"}, action_high=3)
        assert chosen.columns == NAMED | {"actions": ["rewards"]}


def test_columns_without_names_are_numbered(plain, tmp_path):
    data = Dataset(**plain)
    assert data.columns == {"observations": ["o0", "o1", "o2", "o3"], "actions": ["a0", "a1"]}
    for name in ("w.npz", "w.hdf5", "w.parquet", "w.csv"):
        convert(data, tmp_path / name)
        assert load(tmp_path / name).columns == data.columns
    with np.load(tmp_path / "w.npz") as file:
        assert "columns" not in file


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"observations": ["x"]}, "expected 4 names of observations"),
        ({"actions": ["x", 3]}, "columns: actions.* expected text"),
        ({"actions": ["x", ""]}, "expected 2 names of actions"),
        ({"actions": ["x", "x"]}, "two of the actions have one name"),
        ([1], "columns"),
    ],
)
def test_names_that_do_not_fit(columns, message, plain, tmp_path):
    with pytest.raises(UserError, match=message):
        Dataset(**plain, columns=columns)
    np.savez(tmp_path / "w.npz", columns=np.array(json.dumps(columns)), **plain)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "w.npz")
    np.savez(tmp_path / "w.npz", columns=np.array("{"), **plain)
    with pytest.raises(UserError, match="columns: expected the names of the columns, as JSON"):
        load(tmp_path / "w.npz")


def test_a_name_fits_into_a_line(plain):
    data = Dataset(**plain, columns={"actions": ["up\n\x1b[31m", "down"]})
    assert data.columns["actions"] == ["up [31m", "down"]


def test_names_show_in_what_is_said(ward, capsys):
    assert "glucose [mg/dl]" in info(load(ward, columns=COLUMNS)) and "dose" in info(load(ward, columns=COLUMNS))
    ward.write_text(CSV.replace("-0.5", "-7"))
    with pytest.raises(UserError, match="dose: 1 out of bounds, such as -7, the first in line 3"):
        load(ward, columns=COLUMNS)
    ward.write_text(CSV.replace("120", "inf"))
    words = [f"{field}={v if isinstance(v, str) else ','.join(v)}" for field, v in COLUMNS.items()]
    assert main(["data", "check", str(ward), "--columns", *words]) == 2
    assert "glucose [mg/dl]" in capsys.readouterr().out
    ward.write_text(CSV.replace("70.5", "70").replace("71", "70").replace("80", "70").replace("81", "70"))
    from sbac.data.loading import LogOptions

    assert "observations: weight is 70 in every row" in examine(ward, LogOptions(columns=COLUMNS)).notes


def test_a_frame_is_a_log(ward):
    data = load(frame(), columns=COLUMNS)
    assert data.hash == load(ward, columns=COLUMNS).hash and data.columns == NAMED
    days = np.array(["2024-01-02", "2024-01-01", "2024-01-03"], "datetime64[D]")
    table = Frame({"obs_0": [2.0, 1.0, 3.0], "action": [0.2, 0.1, 0.3], "reward": [1.0, 1, 1], "day": days})
    assert load(table, columns={"time": "day"}).observations.ravel().tolist() == [1, 2, 3]
    assert len(load(table, columns={"episode": "day"}).episodes) == 3
    words = Frame({"obs_0": [2.0, 1.0], "action": [0.2, 0.1], "reward": [1.0, 1], "day": ["b", "a"]})
    with pytest.raises(UserError, match="time: expected numbers or dates"):
        load(words, columns={"time": "day"})
    with pytest.raises(UserError, match="a DataFrame"):
        load(np.zeros(3))  # pyright: ignore[reportArgumentType]


def test_a_policy_takes_observations_by_name(ward, tmp_path):
    run = sbac.train(frame(), "bc", columns=COLUMNS, steps=1, evaluate=False, out=tmp_path / "run")
    assert run.config["columns"] == NAMED
    (policy,) = sbac.Run.load(tmp_path / "run").policies
    assert policy.columns == policy.config["columns"] == NAMED
    row = {"weight": 70.0, "glucose [mg/dl]": 100.0, "other": "x"}
    expected = policy([100.0, 70.0])
    np.testing.assert_array_equal(policy(row), expected)
    np.testing.assert_array_equal(policy.sample(row, 1), policy.sample([100.0, 70.0], 1))
    rows = Frame({"weight": [70.0, 80.0], "glucose [mg/dl]": [100.0, 90.0]})
    np.testing.assert_array_equal(policy(rows), policy([[100.0, 70.0], [90.0, 80.0]]))  # type: ignore
    with pytest.raises(UserError, match=r"observations: no 'glucose \[mg/dl\]'; expected glucose \[mg/dl\], weight"):
        policy({"weight": 70.0})
    for given in (row | {"weight": np.nan}, [100.0, np.nan]):
        with pytest.raises(UserError, match=r"observations\[1\] is nan; expected finite numbers in weight"):
            policy(given)  # type: ignore
    with pytest.raises(UserError, match="observations: weight: expected numbers"):
        policy(row | {"weight": "heavy"})  # type: ignore


def test_names_of_a_damaged_policy(ward, tmp_path):
    run = sbac.train(load(ward, columns=COLUMNS), "bc", steps=1, evaluate=False)
    (policy,) = run.policies
    for columns in ({"actions": []}, 3):
        policy.config["columns"] = columns
        policy.save(tmp_path / "p.safetensors")
        with pytest.raises(UserError, match="a damaged policy"):
            sbac.Policy.load(tmp_path / "p.safetensors")


def test_names_do_not_keep_a_run_from_going_on(ward, tmp_path):
    data = load(ward, columns=COLUMNS)
    sbac.train(data, "bc", steps=1, evaluate=False, out=tmp_path / "run")
    other = Dataset(**data.arrays(), name=data.name)
    sbac.train(other, "bc", steps=1, evaluate=False, out=tmp_path / "run", resume=True)
