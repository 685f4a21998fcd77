"""What stands in the documents: commands and code that run, links that lead somewhere, numbers that the raw cells have.

A block in `bash` or `python` runs, in the order of its page, in an empty folder, with few steps. The line
`<!-- not run: why -->` above a block leaves it out. Pages that run, and tables of the lab notes, are slow tests. All
commands, those of the pages that do not run as well, are parsed in the quick suite.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbac
from sbac import cli
from sbac.algorithms import REGISTRY, find
from sbac.algorithms.listing import options_table
from sbac.config import fields_of
from sbac.environments.tasks import normalised_score
from sbac.lab.cells import read_cells
from sbac.lab.naming import collect
from sbac.lab.tables import score_tables
from sbac.text import number

ROOT = Path(__file__).parents[1]
NOTES = ROOT / "lab-notes"
TABLE = NOTES / "table"
RESULTS = ROOT / "docs" / "results.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted(NOTES.rglob("*.md"))]
RUN = ("README", "start", "your-log", "alpha", "report", "gpu", "deploy")
"""The pages whose blocks run."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `why_not` says why it does not run."""

    language: str
    text: str
    why_not: str | None


def blocks(page: Path) -> Iterator[Block]:
    fence = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    for why_not, language, text in fence.findall(page.read_text()):
        yield Block(language, text, why_not or None)


def commands(text: str) -> Iterator[list[str]]:
    """The words of every `sbac ...` in a block, after `sbac`."""
    for line in text.replace("\\\n", " ").splitlines():
        # Loops and shortened commands are for people.
        if line.startswith("sbac ") and not any(part in line for part in ("$", "\\", "...")):
            yield shlex.split(line, comments=True)[1:]


ALL_COMMANDS = {
    " ".join(words): words
    for page in PAGES
    for block in blocks(page)
    if block.language != "text"
    for words in commands(block.text)
}


@pytest.mark.parametrize("words", ALL_COMMANDS.values(), ids=ALL_COMMANDS.keys())
def test_every_command_is_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The parser takes it, and the method has the options."""
    parser = cli.build_parser()
    extra: list[str] = []
    if words[0] == "train":
        known, extra = parser.below["train"].split(words[1:])
        words = ["train", *known]
    try:
        parsed = parser.parse_args(words)
    except SystemExit as ended:  # --help, --version
        assert ended.code == 0
        return
    if extra:
        names = {word[2:].replace("-", "_") for word in extra if word.startswith("--")}
        assert names <= set(fields_of(find(parsed.algorithm).config))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_python_is_python(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, str(page), "exec")


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the page's blocks with few steps, in the order of a reader; how many commands and blocks ran."""
    train, names = sbac.train, {"__name__": "__main__"}

    def short(*arguments: Any, **options: Any) -> sbac.Run:
        options |= {"steps": 20, "episodes": 1, "workers": 1}
        return train(*arguments, **options)

    monkeypatch.setattr(sbac, "train", short, raising=False)
    monkeypatch.setattr("sbac.training.train.train", short)
    monkeypatch.chdir(folder)
    ran = 0
    for block in blocks(page):
        if block.why_not is not None or block.language not in ("python", "bash"):
            continue
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
            ran += 1
        for words in commands(block.text) if block.language == "bash" else ():
            few = {"bench": ["--steps", "20", "--episodes", "1", "--final-episodes", "1"]}.get(words[0], [])
            assert cli.main([*words, *few]) == 0, words
            ran += 1
    return ran


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = next(page for page in PAGES if page.stem == name)
    assert run_page(page, tmp_path, monkeypatch) > 0


def test_a_block_runs_or_says_why_not() -> None:
    """A plain fence is neither run nor explained: on pages that run, commands stand in bash, output in text."""
    for page in PAGES:
        found = list(blocks(page))
        if page.stem in RUN:
            assert {block.language for block in found} <= {"python", "bash", "text"}, page
        else:
            assert all(block.why_not or block.language == "text" for block in found), page


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 500


def test_links_between_pages_lead_somewhere() -> None:
    for page in LINKED:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http", "mailto")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("name", REGISTRY)
def test_the_reference_has_every_option(name: str) -> None:
    table = options_table(name)
    for field in fields_of(find(name).config).values():
        assert f"`--{field.name.replace('_', '-')}`" in table and field.spec.help


def test_every_lab_note_is_in_the_index() -> None:
    index = (NOTES / "README.md").read_text()
    assert {path.name for path in NOTES.iterdir() if path.is_dir()} == set(re.findall(r"^\| \[([\w-]+)\]", index, re.M))


def section(heading: str, page: Path) -> str:
    """The text below a heading, up to the next of its kind."""
    return page.read_text().split(f"\n{heading}\n")[1].split(f"\n{heading.split()[0]} ")[0]


def rows_of(text: str) -> list[list[str]]:
    """The cells of every row of a table, without their bold and code marks."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[re.sub(r"\*\*|`", "", cell).strip() for cell in line.strip("|").split("|")] for line in lines]


def named_rows(text: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in rows_of(text)}


@pytest.mark.slow
def test_the_letter_of_the_paper() -> None:
    rows = named_rows(section("## The paper's four claims", RESULTS))
    methods = [name.replace("sbac-no-w@paper", "sbac-no-w") for name in rows["task"]]
    cells = [cell for cell in read_cells(TABLE) if cell.algorithm == "sbac"] + read_cells(TABLE / "letter")
    tables = score_tables(collect(cells, read_cells(TABLE / "development")))
    table = next(table for table in tables if table.length == "1M + 200k steps")
    block = next(b for b in table.blocks if set(b.methods) == set(methods))
    assert rows["mean"] == [number(table.mean(block, m)) for m in methods]
    for task in block.datasets:
        assert rows[task] == [number(table.row(task)[m].mean, table.row(task)[m].deviation) for m in methods], task


def test_the_table_of_the_demonstrations() -> None:
    rows = named_rows(section("## From 25 human demonstrations", RESULTS))
    scores: dict[float, dict[int, float]] = {}
    for line in (NOTES / "door-human" / "returns.jsonl").read_text().splitlines():
        policy = json.loads(line)
        scores.setdefault(policy["alpha"], {})[policy["seed"]] = float(
            normalised_score("door-human-v1", policy["returns"]).mean()
        )
    for label, seeds in (("seeds 100 to 104, which fixed alpha", range(100, 105)), ("seeds 10 to 14", range(10, 15))):
        for alpha, said in zip(rows["alpha"], rows[label], strict=True):
            of_seeds = [scores[float(alpha)][seed] for seed in seeds]
            assert said == number(float(np.mean(of_seeds)), float(np.std(of_seeds, ddof=1))), (label, alpha)


def printed_by(script: str, *words: str) -> str:
    command = [sys.executable, str(NOTES / script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.slow
def test_the_choice_from_the_log_against_the_rivals() -> None:
    folders = "lab-notes/third-form/choice lab-notes/table lab-notes/table/published --developed-on"
    words = f"{folders} lab-notes/table/development --rivals lab-notes/third-form/rivals"
    taken, *parts = printed_by("third-form/against.py", *words.split()).split("\n-- ")
    beside_one, beside_best, second, second_one, by_log, _, of_lists, with_rivals, both, committees, _ = (
        {row[0]: row[1:] for row in ([cell.strip() for cell in line.split("|")] for line in part.splitlines()[1:])}
        for part in parts
    )
    names = {"SBAC, one setting": "sbac", "ReBRAC, tuned": "rebrac@tuned", "one-step, as published": "one-step@paper"}
    names |= {"IQL, tuned": "iql@tuned", "TD3+BC, as published": "td3-bc@paper", "cloning": "bc"}
    names |= {"ReBRAC, as published": "rebrac@paper", "CQL, as published": "cql"}
    top = RESULTS.read_text().split("\n## ")[0]
    on_first, on_second = top.split("\nThen the second ladder")
    said = named_rows(on_first)
    for name, method in names.items():
        assert said[name][:2] == beside_one[method][:2], name
        assert beside_one[method][2] == "clear after Holm"
    assert f"choice {said['SBAC, chosen from the log'][0]}" in taken
    for method in ("rebrac@tuned", "iql@tuned"):
        assert all(number in top for number in beside_best[method][:2]), method
    bold = {line.split(",")[0][2:]: line.split("|")[3:6] for line in on_second.splitlines() if line.startswith("| ")}
    for name, row in named_rows(on_second).items():
        if rival := {"ReBRAC": "rebrac", "IQL": "iql", "TD3+BC": "td3bc"}.get(name.split(",")[0]):
            assert row[:3] == [second[rival][2], second[rival][3], second_one[rival][3]], name
            assert row[3] == f"{both[rival][1]}, {both[rival][2]}: {both[rival][3]}", name
            clear = [found[rival][4].startswith("clear") for found in (second, second_one, both)]
            assert ["**" in cell for cell in bold[name.split(",")[0]]] == clear, name
    told = [*of_lists["rebrac"][1:4], *of_lists["iql"][1:3], *with_rivals["sbac"], *with_rivals["sbac and rebrac"]]
    for figure in (*told, committees["rebrac"][2], committees["iql"][2]):
        assert figure in on_second, figure
    loses = named_rows(section("## Where SBAC loses", RESULTS))
    for log, (ours, chosen, *rivals) in by_log.items():
        ahead = dict(zip(("IQL", "TD3+BC", "ReBRAC"), map(float, rivals), strict=True))
        ahead = {name: score for name, score in ahead.items() if score > max(float(ours), float(chosen))}
        (row,) = [cells for name, cells in loses.items() if name.split(" ")[0] == log] or [None]
        assert (row is not None) == bool(ahead), log
        if row is not None:
            in_order = sorted(ahead.items(), key=lambda each: -each[1])
            assert row == [ours, chosen, ", ".join(f"{name} {score}" for name, score in in_order)], log
    trust = (ROOT / "docs" / "trust.md").read_text()
    rows = [
        re.findall(rf"^\| {words}.*", trust, re.MULTILINE)
        for words in ("one setting everywhere", "taken from the six pol")
    ]
    for number_, ladder in enumerate(taken.splitlines(), 2):
        setting, chosen, best = (
            re.findall(rf"\b{w} (\d+\.\d)", ladder)[0] for w in ("one setting", "choice", "oracle")
        )
        cells = [line.split("|")[number_].replace("*", "").strip() for (line,) in rows]
        assert cells[0] == setting and cells[1].startswith(f"{chosen} (") and cells[1].endswith(f"; {best}"), ladder


def test_the_reference_names_the_whole_api() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text()
    named = {line.rsplit(".", 1)[1] for line in text.splitlines() if line.startswith("::: ")}
    assert named >= set(sbac.__all__) - {"__version__"}
