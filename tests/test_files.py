"""Files are whole or absent, and an error names what was expected."""

import json
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from sbac.errors import UserError
from sbac.files import finite, load_arrays, read_rows, read_safetensors, save_arrays, write_atomic
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
