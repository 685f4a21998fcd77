"""What stands in the documents: commands that the command line takes, numbers that the results folder has."""

import shlex
import subprocess
from pathlib import Path

import pytest

from sbac import cli
from sbac.results.cells import read_cells
from sbac.results.series import collect
from sbac.results.tables import score_tables
from sbac.text import number

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results.md"
COLUMNS = ("bc", "td3-bc", "iql", "cql", "rebrac", "one-step", "sbac-no-w", "sbac")
"""The methods in README's table, after the task and the data."""


def bench_commands() -> list[list[str]]:
    """The words of every bench that made the tables, as a shell would pass them on."""
    block = RESULTS.read_text().split("\n```\n")[1]
    listed = 'sbac() { printf "%q " "$@"; echo; }\n' + block
    lines = subprocess.run(["bash", "-c", listed], capture_output=True, text=True, check=True).stdout.splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("words", bench_commands(), ids=lambda words: "-".join(words[-6:]).replace("/", "-"))
def test_the_benches_of_the_results(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their data are not here; nothing else is wrong with them."""
    monkeypatch.setenv("SBAC_DATA", str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    cli.main([*words, "--status", "--out", str(tmp_path / "results")])
    wrong = capsys.readouterr().err
    assert not wrong or "not made yet" in wrong


def test_the_benches_of_the_results_make_all_of_them() -> None:
    """Online methods stand under their environment, and are named by a task in it."""
    named: set[tuple[str, str, int]] = set()
    for words in bench_commands():
        tasks = words[words.index("--tasks") + 1 : words.index("--algorithms")]
        methods = words[words.index("--algorithms") + 1 : words.index("--seeds")]
        steps = int(words[words.index("--steps") + 1])
        named |= {(task, method.split("@")[0], steps) for task in tasks for method in methods}
    found = {(r.data.name, r.algorithm, (r.length or [0])[0]) for r in read_cells(ROOT / "results")}
    online = {"Hopper-v4": "hopper-medium-made", "Walker2d-v4": "walker2d-medium-made"}
    online |= {"HalfCheetah-v4": "halfcheetah-medium-made"}
    assert named == {(online.get(data, data), method, steps) for data, method, steps in found}


def test_the_table_in_the_readme() -> None:
    table = next(t for t in score_tables(collect(read_cells(ROOT / "results"))) if t.length == "200k steps a phase")
    block = next(b for b in table.blocks if len(b.datasets) == 9)
    lines = [line.strip(" |").split("|") for line in (ROOT / "README.md").read_text().splitlines()]
    rows = {line[0].strip(): [cell.strip(" *") for cell in line[1:]] for line in lines if len(line) == len(COLUMNS) + 2}
    rows = {name: cells for name, cells in rows.items() if name == "mean" or "±" in cells[1]}
    assert {f"{name}-made" for name in rows if name != "mean"} == set(block.datasets)
    for name, (data, *cells) in rows.items():
        if name == "mean":
            expected = [number(table.mean(block, method)) for method in COLUMNS]
            assert data == number(table.data_mean(block) or 0.0)
        else:
            found = [table.chosen[f"{name}-made", method] for method in COLUMNS]
            expected = [number(s.mean, s.deviation) for s in found]
            assert data == number(table.data_score(f"{name}-made") or 0.0)
        assert cells == expected, name
