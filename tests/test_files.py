"""Files are whole or absent, and an error names what was expected."""

import json
import os
import pwd
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

import sbac
from sbac.cli import main
from sbac.errors import UserError
from sbac.files import (
    TEMPORARY,
    append_rows,
    cache_folder,
    finite,
    load_arrays,
    read_json,
    read_rows,
    read_safetensors,
    remove,
    save_arrays,
    write_atomic,
    write_safetensors,
)
from sbac.making.ladder import read_ladders
from sbac.policy import Policy


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(file: IO[bytes]) -> None:
        file.write(b"new")
        assert path.read_bytes() == b"old"
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"file: cannot be written \(No space left on device\)"):
        write_atomic(path, fail)

    def interrupt(file: IO[bytes]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, interrupt)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    write_atomic(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"


def test_arrays_survive_their_file(tmp_path: Path) -> None:
    arrays = {"number": np.array(3.0), "turned": np.arange(6.0).reshape(2, 3).T, "flags": np.array([True, False])}
    save_arrays(tmp_path / "state", arrays, {"step": 4})
    again, meta = load_arrays(tmp_path / "state")
    assert meta == {"step": 4}
    for name, array in arrays.items():
        assert again[name].shape == array.shape and again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def test_an_error_says_what_the_file_was_expected_to_be(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no arrays")
    for read, expected in ((load_arrays, "checkpoint"), (Policy.load, "policy file"), (read_ladders, "ladder file")):
        with pytest.raises(UserError, match=f"text: not a {expected} "):
            read(tmp_path / "text")
        with pytest.raises(UserError, match=f"nowhere: no such {expected}$"):
            read(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a table"):
        read_safetensors(tmp_path, "table")


def test_a_damaged_line_is_named_and_a_cut_one_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert read_rows(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(UserError, match="line 2 is damaged"):
        read_rows(path)


def test_numbers_that_json_lacks_become_null() -> None:
    value = finite({"a": [1.0, float("nan"), (float("inf"), "nan", None, True)], "b": {"c": -float("inf")}})
    assert json.dumps(value) == '{"a": [1.0, null, [null, "nan", null, true]], "b": {"c": null}}'


def test_a_temporary_name_cannot_be_foreseen_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("mine")
    for name in ("page.html.tmp", ".page.html.tmp"):  # names of earlier versions, or an easy guess
        (tmp_path / name).symlink_to(victim)
    names: set[str] = set()
    for _ in range(2):
        write_atomic(path, lambda file: names.update(os.listdir(tmp_path)))
    write_atomic(path, b"page")
    assert len([name for name in names if TEMPORARY.fullmatch(name)]) == 2
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    (tmp_path / f".{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(UserError, match="File exists"):
        write_atomic(path, b"other")
    assert victim.read_text() == "mine" and path.read_bytes() == b"page"


def test_a_folder_or_a_device_is_no_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path, kind in (
        (tmp_path, "a folder"),
        (Path("/dev/null"), "a device"),
        (tmp_path / "pipe", "a device or a pipe"),
    ):
        with pytest.raises(UserError, match=f"{path}: {kind}.*; expected the name of a file"):
            write_atomic(path, b"x")
    for path in (tmp_path / "link", tmp_path / "pipe"):
        with pytest.raises(UserError, match="a device or a pipe"):
            append_rows(path, [{}])
        with pytest.raises(UserError, match="a device or a pipe"):
            read_rows(path)
        with pytest.raises(UserError, match="a device or a pipe"):
            read_json(path)
    assert (tmp_path / "link").is_symlink() and Path("/dev/null").is_char_device()


def test_rows_are_not_appended_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match=r"rows\.jsonl: cannot be written"):
        append_rows(tmp_path / "rows.jsonl", [{"a": 1}])
    assert (tmp_path / "victim").read_text() == "mine"


def test_to_remove_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    remove(tmp_path / "link")
    assert (tmp_path / "folder").is_dir() and not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("home", [None, "", "/proc/no-such-home"])
def test_without_a_home_caches_are_temporary_and_it_is_said_once(
    home: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for a user without an entry in /etc/passwd, in a container."""

    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    monkeypatch.delenv("D4RL_DATASET_DIR", raising=False)
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    cache_folder.cache_clear()
    try:
        first, second = cache_folder(), cache_folder()
        assert first == second and first.is_dir() and first.stat().st_mode & 0o077 == 0
        assert capsys.readouterr().err.count("note: no home folder") == 1
        with pytest.raises(UserError, match="unknown dataset"):
            sbac.load("no-such-data")
        with pytest.raises(UserError, match="put D4RL's file"):
            sbac.load("hopper-medium-v2")
    finally:
        cache_folder.cache_clear()


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_compiled_programs_lie_where_others_cannot_write(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is made is the user's alone; one that anybody can write is not used."""
    monkeypatch.setenv("HOME", str(tmp_path))
    cache_folder.cache_clear()
    try:
        folder = cache_folder()
        assert folder == tmp_path / ".cache" / "sbac" and folder.stat().st_mode & 0o077 == 0
        folder.chmod(mode)
        cache_folder.cache_clear()
        assert (cache_folder() == folder) == (mode == 0o755)
    finally:
        cache_folder.cache_clear()


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": 1e400}'])
def test_a_record_has_no_numbers_that_are_not_finite(text: str, tmp_path: Path) -> None:
    (tmp_path / "value.json").write_text(text)
    with pytest.raises(UserError, match="is no number of JSON"):
        read_json(tmp_path / "value.json")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 200 + "]" * 200, "1" * 5_000, '"\\u001b[2J"', '{"\\u0007": 1}', '["\\ud800"]']
)
def test_one_place_refuses_json_that_is_too_deep_too_long_or_dangerous_to_show(text: str, tmp_path: Path) -> None:
    (tmp_path / "value.json").write_text(text)
    with pytest.raises(UserError, match="not readable as JSON") as raised:
        read_json(tmp_path / "value.json")
    assert str(raised.value).isprintable()
    (tmp_path / "rows.jsonl").write_text(f'{{"a": {text}}}\n')
    with pytest.raises(UserError, match="line 1 is damaged"):
        read_rows(tmp_path / "rows.jsonl")
    write_safetensors(tmp_path / "state", {"a": np.zeros(1)}, {"meta": text})
    with pytest.raises(UserError, match="not a checkpoint"):
        load_arrays(tmp_path / "state")


def test_names_that_a_terminal_would_obey_or_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    (run / "policies").mkdir(parents=True)
    record: dict[str, Any] = {"format": 1, "algorithm": "bc", "preset": "quick", "labels": ["a"], "versions": {}}
    record |= {"runs": [{"seed": 0, "steps": [1]}]}
    record |= {"evaluation": {"environment": None, "episodes": 1, "seed": 0, "every": None}}
    (run / "config.json").write_text(json.dumps(record))
    for name in (b"\xff.safetensors", b"\x1b[2J.safetensors"):
        path = Path(os.fsdecode(os.fsencode(run / "policies") + b"/" + name))
        path.write_bytes(b"no policy")
        for words in (["select", str(run)], ["evaluate", str(path)]):
            assert main(words) == 2
            line = capsys.readouterr().err
            assert line.startswith("error: ") and line[:-1].isprintable() and line[-1] == "\n"
        path.unlink()
    with pytest.raises(UserError, match="expected a path in UTF-8"):
        Policy.load("\udcff")
