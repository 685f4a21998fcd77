"""The options that every command that reads a log has."""

import json
from dataclasses import replace

import pytest

import sbac
from sbac.cli import main
from sbac.errors import UserError
from sbac.trust.contenders import own_log
from tests.data.test_formats import write_minari

CSV = """cos,sin,speed,torque,r,tripped,trial
1,0,0.1,-2.0,0.5,0,a
0.9,0.1,0.2,1.5,0.5,0,a
0.8,0.2,0.3,0.25,0.5,1,a
1,0,0.15,-2.0,0.5,0,b
0.9,0.1,0.25,1.5,0.5,0,b
"""
COLUMNS = [
    "--columns",
    "observations=cos,sin,speed",
    "actions=torque",
    "rewards=r",
    "terminals=tripped",
    "episode=trial",
]


class Reached(Exception):
    pass


@pytest.fixture
def odd(tmp_path):
    """A log with odd names and actions beyond 1."""
    (tmp_path / "odd.csv").write_text(CSV)
    return str(tmp_path / "odd.csv")


def test_an_odd_csv_is_described_checked_and_converted(odd, tmp_path, capsys):
    assert main(["data", "info", odd]) == 2
    told = capsys.readouterr().err
    assert "no observations and no actions and no rewards" in told and "--columns observations=COLUMN" in told
    assert main(["data", "info", odd, *COLUMNS]) == 2
    assert "--action-low" in capsys.readouterr().err
    assert main(["data", "info", odd, *COLUMNS, "--env", "Pendulum-v1"]) == 0
    by_environment = capsys.readouterr().out
    assert "action bounds   -2 to 2" in by_environment
    bounds = ["--action-low", "-2e0", "--action-high", "2"]
    assert main(["data", "check", odd, *COLUMNS, *bounds]) == 0
    assert "no problems found in 5 rows" in capsys.readouterr().out
    assert main(["data", "check", odd, *COLUMNS]) == 2
    told = capsys.readouterr()
    assert told.err == f"error: {odd}: 4 problems found in 4 of 5 rows\n" and told.out.count("--action-low") == 1
    assert main(["data", "convert", odd, str(tmp_path / "even.parquet"), *COLUMNS, *bounds]) == 0
    assert "5 rows in" in capsys.readouterr().out
    assert main(["data", "info", str(tmp_path / "even.parquet")]) == 0
    again = capsys.readouterr().out

    def digest(text):
        return [line for line in text.splitlines() if "sha256" in line]

    assert digest(again) == digest(by_environment) != []


def test_time_limits_as_terminals_are_told_on_stderr(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text("obs_0,action,reward,terminal\n" + "0.5,0.5,1,0\n0.25,0.5,1,1\n" * 3)
    assert main(["data", "info", str(log)]) == 0
    told = capsys.readouterr().err
    assert told.startswith("warning: log.csv: all 3 episodes have 2 steps") and told.count("\n") == 1
    assert main(["data", "info", str(log), "--horizon", "2"]) == 0
    told = capsys.readouterr()
    assert told.err == "" and "0 terminals, 3 time limits" in told.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "rewards"], "--columns 'rewards': expected FIELD=COLUMN"),
        (["--columns", "rewards=r", "rewards=s"], "rewards is given twice"),
        (["--columns", "reward=r"], "did you mean 'rewards'"),
        (["--columns", "rewards=none"], "no column 'none'; the file has"),
        (["--max-bytes", "many"], "--max-bytes 'many': expected a number of bytes"),
        (["--max-bytes", "1k"], "refusing to expand it beyond 1,024 bytes"),
        (["--horizon", "0"], "horizon 0"),
        (["--action-low", "x"], "--action-low"),
    ],
)
def test_bad_options_end_with_one_line(words, message, odd, capsys, tmp_path):
    head, rows = CSV.split("\n", 1)
    (tmp_path / "odd.csv").write_text(f"{head}\n{rows * 40}")
    columns = COLUMNS if "--max-bytes" in words or "--horizon" in words else []
    assert main(["data", "info", odd, *columns, *words]) == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and told.out == ""


def test_train_takes_the_same_options(odd, monkeypatch):
    def instead(data, algorithm, **options):
        assert data.observations.shape == (5, 3) and data.action_high.tolist() == [2] and len(data.episodes) == 2
        assert options["environment"] == "Pendulum-v1"
        raise Reached

    monkeypatch.setattr("sbac.training.train.train", instead)
    with pytest.raises(Reached):
        main(["train", odd, *COLUMNS, "--env", "Pendulum-v1"])


def test_a_minari_dataset_is_evaluated_in_its_own_environment(log, tmp_path):
    """In MountainCarContinuous, whose sizes the log has; an environment that is not here is not asked for."""
    from sbac.training.folder import Folder
    from sbac.training.request import OfflineRequest

    columns = log | {name: log[name][:, :2] for name in ("observations", "next_observations")}
    columns["actions"] = log["actions"][:, :1]
    box = json.dumps({"type": "Box", "shape": [1], "low": [-1.0], "high": [1.0]})
    for env_id, expected in (("MountainCarContinuous-v0", "MountainCarContinuous-v0"), ("Nowhere-v7", None)):
        spec = json.dumps({"id": env_id, "kwargs": {}})
        folder = write_minari(tmp_path / env_id, columns, action_space=box, env_spec=spec)
        request = OfflineRequest(data=sbac.load(folder), algorithm="bc", folder=Folder(tmp_path / "run"))
        assert request.watched_in == request.record.evaluation.environment == expected


def test_several_files_are_described_converted_and_judged_on(odd, tmp_path, capsys, monkeypatch):
    bounds = ["--action-low", "-2", "--action-high", "2"]
    (tmp_path / "more").mkdir()
    for name in ("day1.csv", "day2.csv"):
        (tmp_path / "more" / name).write_text(CSV)
    both = [str(tmp_path / "more" / name) for name in ("day1.csv", "day2.csv")]
    digests = set()
    for source in (both, [str(tmp_path / "more")], [str(tmp_path / "more" / "day?.csv")]):
        assert main(["data", "info", *source, *COLUMNS, *bounds]) == 0
        told = capsys.readouterr()
        assert "10; s' is known for" in told.out and "note: 2 files read as one log: day1.csv, day2.csv\n" in told.err
        digests |= {line for line in told.out.splitlines() if "sha256" in line}
    assert len(digests) == 1
    assert main(["data", "convert", *both, str(tmp_path / "one.npz"), *COLUMNS, *bounds]) == 0
    assert len(sbac.load(tmp_path / "one.npz")) == 10

    def choose(runs, data, *_):
        assert len(data) == 10
        raise Reached

    monkeypatch.setattr("sbac.cli.select.choose", choose)
    with pytest.raises(Reached):
        main(["select", str(run_of(tmp_path / "one.npz", tmp_path / "run")), "--data", *both, *COLUMNS, *bounds])


def run_of(path, out, **options):
    """The folder of a run that has not begun."""
    from sbac.files import write_json
    from sbac.records import as_json
    from sbac.training.folder import Folder
    from sbac.training.request import OfflineRequest

    request = OfflineRequest(data=sbac.load(path, **options), algorithm="bc", folder=Folder(out))
    out.mkdir()
    write_json(out / "config.json", as_json(request.record))
    return out


def test_what_was_done_to_a_log_stays_with_the_run(tmp_path, capsys, monkeypatch):
    (tmp_path / "log.csv").write_text("obs_0,action,cost\n1,0.5,1\n,0.5,1\n3,0.25,2\n")
    options = {"columns": {"rewards": "-cost"}, "missing": "hold"}
    folder = run_of(tmp_path / "log.csv", tmp_path / "run", **options)
    notes = [
        "rewards: the sum -cost",
        "terminals: not given; every episode is taken as cut by time",
        "missing: 1 value filled with the last one of the same episode",
    ]
    assert sbac.Run.load(folder).record.notes == notes
    run, data = sbac.Run.load(folder), sbac.load(tmp_path / "log.csv", **options)
    assert own_log(run, None).hash == data.hash  # read again as it was
    said = run.record.reading or {}
    run.record = replace(run.record, reading={**said, "environment": "module_of_a_stranger:Env-v0"})
    assert own_log(run, None).hash == data.hash
    run.record = replace(run.record, reading={"missing": "x"})
    with pytest.raises(UserError, match="reading: missing is 'x'; expected one of refuse, hold, cut"):
        own_log(run, None)

    def choose(*_):
        raise Reached

    monkeypatch.setattr("sbac.cli.select.choose", choose)
    with pytest.raises(Reached):
        main(["select", str(folder)])
    assert capsys.readouterr().err == "".join(f"note: {note}\n" for note in notes)


def test_a_name_with_a_comma_stands_in_quotation_marks(tmp_path, capsys):
    (tmp_path / "log.csv").write_text('obs_0,"valve, %",reward\n1,0.5,1\n2,0.25,1\n')
    assert main(["data", "check", str(tmp_path / "log.csv"), "--columns", "actions=valve, %"]) == 2
    assert "no column 'valve'; the file has obs_0, reward, \"valve, %\"" in capsys.readouterr().out
    assert main(["data", "check", str(tmp_path / "log.csv"), "--columns", 'actions="valve, %"']) == 0


@pytest.mark.parametrize("words", [["--missing", "hold"], ["--missing", "cut"], ["--continuous"]])
def test_a_streamed_log_is_taken_as_it_is(words, odd, capsys):
    assert main(["train", odd, "--stream", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {' '.join(words)}: not with --stream; ")


def test_names_cannot_move_the_cursor(tmp_path, capsys):
    """Names of columns, and of files that a folder holds."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("\x1b[31mlog.csv", "\u202elog.csv"):
        rows = "1,2,0.5,1,0\n1,2,0.25,1,1\n" * 3
        (folder / name).write_text(f"obs:\x1b[2Jheat,obs:\u202eflow,action,reward,terminal\n{rows}")
    for words in (["info", folder], ["check", folder], ["convert", folder, tmp_path / "log.csv"]):
        assert main(["data", *map(str, words)]) == 0
        told = capsys.readouterr()
        assert "\x1b" not in told.out + told.err and "\u202e" not in told.out + told.err
        assert "heat" in told.out or words[0] == "convert"
