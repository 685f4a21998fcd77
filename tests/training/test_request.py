"""A request is checked when it is built: before a folder is touched and before anything is trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mutations import copied
from tests.small import TINY, contents, make_log

import sbac
from sbac import files
from sbac.errors import UserError
from sbac.records import as_json
from sbac.runs import WarmStart, read_record
from sbac.training.folder import Folder, open_folder
from sbac.training.online.request import OnlineRequest
from sbac.training.request import Evaluating, Grid, OfflineRequest


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"algorithm": "sac"}, "learns in an environment"),
        ({"grid": Grid(preset="quikc")}, "did you mean 'quick'"),
        ({"grid": Grid(options={"no_such_option": 1})}, "unknown option of bc"),
        ({"evaluating": Evaluating(environment="No-such-v0")}, "No-such-v0"),
        ({"evaluating": Evaluating(environment="Hopper-v4")}, "11 observations"),
        ({"warm_start": WarmStart("no-such-run")}, "no-such-run"),
        ({"grid": Grid(options={"hidden": [[10] * 100, [4]]})}, "too many for the name of a policy's file"),
    ],
)
def test_a_request_that_cannot_be_trained(asked: dict[str, Any], message: str, tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"data": make_log(), "algorithm": "bc", "folder": Folder(tmp_path / "run"), **asked}
    with pytest.raises(UserError, match=message):
        OfflineRequest(**wanted)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"algorithm": "bc"}, "learns from a log"),
        ({"instances": 3}, "multiple of instances"),
        ({"environment": "No-v0"}, "No-v0"),
        ({"environment": "CartPole-v1"}, "not a flat box"),
    ],
)
def test_an_online_request_that_cannot_be_trained(asked: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    wanted: dict[str, Any] = {"environment": "Pendulum-v1", "algorithm": "td3", "folder": folder, **asked}
    with pytest.raises(UserError, match=message):
        OnlineRequest(**wanted)
    assert not folder.path.exists()


def test_data_that_do_not_fit_the_task_they_claim(tmp_path: Path) -> None:
    """A file says itself of which kind and task its data are."""
    claim: dict[str, Any] = {"kind": "made", "task": "hopper-medium-made"}
    path = tmp_path / "log.npz"
    sbac.Dataset(np.zeros((20, 3)), np.zeros((20, 1)), np.zeros(20), np.zeros(20), **claim).save(path)
    with pytest.raises(UserError, match="hopper-medium-made: 11 observations and 3 actions; the data have 3 and 1"):
        sbac.train(path, "bc", out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()


def test_labels_stay_in_the_folder(finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path / "run")
    path = run / "config.json"
    config = json.loads(path.read_text())
    for label in ("../../victim", "/etc/passwd", "a/b", "..", "", "x" * 300):
        path.write_text(json.dumps(config | {"labels": [label]}))
        with pytest.raises(UserError, match=r"config\.json: label .*; expected a name that a file can have"):
            read_record(run)
    path.write_text(json.dumps(config | {"labels": ["a\nb"]}))
    with pytest.raises(UserError, match=r"config\.json: .*control characters"):
        read_record(run)


def test_the_record_on_disk_is_that_of_the_request(tmp_path: Path) -> None:
    offline = OfflineRequest(
        data=make_log(),
        algorithm="bc",
        folder=Folder(tmp_path / "offline"),
        grid=Grid(options={"learning_rate": [1e-3, 1e-2]}),
        evaluating=Evaluating(environment="Pendulum-v1", evaluate_at=(20, 10, 20)),
    )
    online = OnlineRequest(environment="Pendulum-v1", algorithm="td3", folder=Folder(tmp_path / "online"), instances=2)
    for request in (offline, online):
        with open_folder(request.folder, request.record):
            assert as_json(read_record(request.folder.path)) == as_json(request.record)
    assert offline.record.evaluation.at == [10, 20] and offline.record.data is not None
    assert online.record.rounds is not None and online.record.rounds.instances == 2 and online.record.data is None


def test_another_run_is_not_resumed_and_the_option_is_named(finished: Path, tmp_path: Path) -> None:
    """Also one whose options are not those of this version: it loads, and is not continued."""
    out = copied(finished, tmp_path / "run")
    with pytest.raises(UserError, match=r"evaluation\.every is None, not 3"):
        sbac.train(make_log(), "bc", out=out, resume=True, evaluate_every=3, **TINY)
    path = out / "config.json"
    config = json.loads(path.read_text())
    first = config["runs"][0]
    without = {name: value for name, value in first.items() if name != "batch_size"}
    for run, said in ((first | {"retired": 3}, "retired is 3, not None"), (without, "batch_size is None, not 8")):
        path.write_text(json.dumps(config | {"runs": [run]}))
        assert len(sbac.Run.load(out).policies) == 1
        with pytest.raises(UserError, match=rf"cannot be resumed as this one: runs\[0\]\.{said}"):
            sbac.train(make_log(), "bc", out=out, resume=True, **TINY)


@pytest.mark.parametrize(("field", "value"), [("phase", "no-such-phase"), ("group", 7), ("step", "four")])
def test_a_damaged_row_is_named_on_resume(field: str, value: object, finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path / "run")
    rows = files.read_rows(out / "metrics.jsonl")
    files.rewrite_rows(out / "metrics.jsonl", [rows[0], {**rows[1], field: value}, *rows[2:]])
    with pytest.raises(UserError, match=rf"metrics\.jsonl: line 2: {field}"):
        sbac.train(make_log(), "bc", out=out, resume=True, **TINY)


def test_a_damaged_checkpoint_is_named_on_resume(finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path / "run")
    path = out / "checkpoint" / "state-0.safetensors"
    arrays, _ = files.load_arrays(path)
    files.save_arrays(path, arrays, {"phase": 0})
    with pytest.raises(UserError, match=r"state-0\.safetensors: step is missing"):
        sbac.train(make_log(), "bc", out=out, resume=True, **TINY)


def test_a_checkpoint_that_says_less_than_it_holds_is_refused(tmp_path: Path) -> None:
    """Trained again from there, finished policies would be written over."""
    out = tmp_path / "run"
    sbac.train(make_log(), "one-step", out=out, **TINY)
    path, kept = out / "checkpoint" / "state-0.safetensors", contents(out / "policies")
    arrays, header = files.load_arrays(path)
    for phase in range(int(header["phase"])):
        files.save_arrays(path, arrays, {**header, "phase": phase})
        with pytest.raises(UserError, match=rf"phase {phase}, step 0, but it holds states of 2 phases"):
            sbac.train(make_log(), "one-step", out=out, resume=True, **TINY)
    assert contents(out / "policies") == kept
