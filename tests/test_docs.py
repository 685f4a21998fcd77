"""Commands that stand in the documents are commands that the command line takes."""

import shlex
import subprocess
from pathlib import Path

import pytest

from sbac import cli

RESULTS = Path(__file__).parents[1] / "docs" / "results.md"


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
