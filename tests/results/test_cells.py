"""Cells: the committed ones load and are written back to the byte; a damaged one is named in one line."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.synthetic import parsed, record, record_json

from sbac.cli import main
from sbac.errors import UserError
from sbac.lab.cells import cell_files, cell_text, path_of, read_cell, write_cell
from sbac.lab.report.markdown import results_markdown

NOTES = Path(__file__).parents[2] / "lab-notes"


@pytest.mark.parametrize(
    ("folder", "least"),
    [("table", 66), ("table/letter", 9), ("table/development", 28), ("table/published", 57), ("trust/fresh", 9)],
)
def test_every_committed_cell_is_written_back_to_the_byte(folder: str, least: int) -> None:
    results = NOTES / folder
    files = cell_files(results)
    assert len(files) >= least
    for file in files:
        cell = read_cell(file)
        assert cell_text(cell).encode() == file.read_bytes(), file
        assert path_of(results, cell) == file
        assert {len(episodes) for curve in cell.curves for episodes in curve.returns} == {cell.protocol.episodes}, file


def test_a_cell_comes_back_as_it_was_written(tmp_path: Path) -> None:
    cell = record()
    path = write_cell(tmp_path, cell)
    assert read_cell(path) == cell
    lines = path.read_text().splitlines()
    assert lines[1] == '"key": "000000000000",' and sum(line.startswith('{"phase"') for line in lines) == 9 + 3


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (["key"], "../victim", "key is '../victim'; expected 12 hexadecimal digits"),
        (["format"], 2, "not a bench's cell (expected format 1)"),
        (["data", "rows"], "many", "data.rows is 'many'; expected a whole number"),
        (["config", "steps"], 100, "config: steps is 100; expected a list"),
        (["runs", 2], {"seed": 1}, "runs[2] has no setting; expected alpha"),
        (["runs"], [], "runs is empty; expected at least one"),
        (["curves", 0, "returns"], [], "curves[0].returns: expected the episodes of each of 1 steps"),
        (["curves", 0, "returns", 0, 3], "1", "curves[0].returns[0][3] is '1'; expected a number"),
        (["final", 1, "setting"], {"beta": 1}, "final[1].setting has beta; expected fields of the grid (alpha)"),
        (["final", 1, "returns"], [], "final[1].returns is empty; expected at least one episode"),
        (["metrics", 0, "values", "critic_loss"], [1.0], "metrics[0].values: expected a number for each of 10 steps"),
        (["data", "returns", "counts"], [1], "data.returns.edges: 26 numbers; expected 2"),
        (["protocol"], None, "protocol is None; expected an object"),
        (["code", "hash"], None, "code.hash is None; expected text"),
    ],
)
def test_a_damaged_cell_ends_a_report_with_one_line(
    place: list[Any], value: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells" / "damaged.json"
    file.parent.mkdir()
    file.write_text(json.dumps(damaged(record_json(), place, value)))
    assert main(["report", str(tmp_path), "--markdown", str(tmp_path / "page.md")]) == 2
    assert capsys.readouterr().err == f"error: {file}: {said}\n"


def damaged(cell: dict[str, Any], place: list[Any], value: object) -> dict[str, Any]:
    """A copy with another value at a place; with the value `...` the place is gone."""
    made = copy.deepcopy(cell)
    holder: Any = made
    for step in place[:-1]:
        holder = holder[step]
    if value is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return made


def places(value: object, so_far: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of a list that of its first entry."""
    yield so_far
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from places(entry, (*so_far, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*so_far, 0))


def test_damage_anywhere_is_refused_or_harmless() -> None:
    """Whatever stands wherever: one line that names the file, or tables."""
    cell = record_json(seeds=1, means={2.0: 50.0})
    refused = 0
    for place in places(cell):
        for value in (..., "x", None) if place else ():
            try:
                found = parsed(damaged(cell, list(place), value))
            except UserError as error:
                assert str(error).startswith("synthetic.json: ") and "\n" not in str(error)
                refused += 1
            else:
                results_markdown([found])
    assert refused > 150
