"""The page and the tables: whole, self-contained, and safe whatever a name says."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbac
from sbac.cli import main
from sbac.lab.cells import write_cell
from sbac.lab.naming import collect
from sbac.lab.report.markdown import BEGIN, END, results_markdown, write_tables
from sbac.report.page import runs_page
from sbac.results.measured import MeasuredRun
from tests.report.synthetic import parsed, record, record_json

HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>"


class Outline(HTMLParser):
    """The elements of a page, and its embedded data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def page_of(*records: MeasuredRun, title: str = "title") -> str:
    return runs_page(records, collect(records), title)


def test_a_page_holds_everything() -> None:
    page = Outline(page_of(record(), record(algorithm="bc", key="1" * 12), title="A title"))
    shown = [attributes["data-name"] for tag, attributes in page.tags if "data-name" in attributes]
    assert shown == ["sbac alpha=0.5", "sbac alpha=2", "bc alpha=0.5", "bc alpha=2"]
    tips = [a["data-tip"] for _, a in page.tags if a.get("data-method") == "sbac alpha=2"]
    ends = [float(words[0]) for tip in tips if len(words := tip.removeprefix("sbac alpha=2").split()) == 1]
    assert ends == pytest.approx([60.0], abs=1.0)
    assert {"outcome", "scores", "curves", "logged", "histograms"} <= {a.get("id") for _, a in page.tags}
    assert "ratio_ess " in page.texts and "A title" in page.texts and page.count("table") >= 4


def test_nothing_comes_from_elsewhere() -> None:
    text = page_of(record())
    page = Outline(text)
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert all("src" not in attributes for _, attributes in page.tags)
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert not re.findall(r"https?://[^\s\"'<]+", text)


def test_hostile_names_are_text() -> None:
    cell = record_json(scored=False, algorithm="sbac")
    cell["data"] |= {"name": HOSTILE, "kind": HOSTILE}
    cell |= {"machine": HOSTILE, "preset": HOSTILE, "date": HOSTILE, "environment": HOSTILE, "algorithm": HOSTILE}
    cell["config"]["note"] = HOSTILE
    cell["versions"][HOSTILE] = HOSTILE
    cell["metrics"][-1]["values"][HOSTILE] = [1.0] * 10
    page = Outline(page_of(parsed(cell), title=HOSTILE))
    honest = Outline(page_of(record(scored=False)))
    assert page.count("script") == honest.count("script") == 1
    assert page.count("img") == honest.count("img") == 0
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert HOSTILE in page.texts and any(attributes.get("data-task") == HOSTILE for _, attributes in page.tags)


def test_a_page_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without an environment has no curves but shows what it logged; with its data here, its actions too."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ends = np.zeros(200, bool)
    ends[19::20] = True
    columns: dict[str, Any] = {"observations": rng.normal(size=(200, 3)), "actions": rng.uniform(-1, 1, (200, 2))}
    columns |= {"rewards": rng.normal(size=200), "terminals": np.zeros(200, bool), "timeouts": ends}
    names = {"observations": ["glucose [mg/dl]", "b", "c"], "actions": ["dose [U]", "valve"]}
    sbac.Dataset(**columns, columns=names).save("log.npz")
    options = {"seeds": 2, "steps": 20, "hidden": [8], "batch_size": 8, "evaluate": False}
    sbac.train("log.npz", "bc", out="first", **options)
    sbac.train("log.npz", "bc", out="second", learning_rate=0.01, **options)

    assert main(["report", "first", "second", "--out", "page.html"]) == 0
    page = Outline(Path("page.html").read_text())
    assert "loss " in page.texts[page.texts.index("What training logged") :]
    assert "curves" not in {attributes.get("id") for _, attributes in page.tags}
    text = " ".join(page.texts)
    assert "distance from the logged actions" in text and "the log is not here" not in text and "loss " in text
    assert "dose [U] " in text and "valve " in text and "returns of episodes" in text

    picture = sbac.plot(sbac.Run.load("first")).png  # of what it does, since it never played
    assert picture.startswith(b"\x89PNG") and picture != sbac.plot(sbac.Run.load("second")).png

    capsys.readouterr()
    assert main(["compare", "first", "second"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("learning_rate")] == [["learning_rate", "0.001", "0.01"]]
    assert not any(line.startswith(("steps", "hidden", "data")) for line in lines)
    assert "neither run was evaluated" in lines

    Path("log.npz").unlink()
    assert main(["report", "first", "--out", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "<h3>valve" not in page and "glucose [mg/dl], b, c" in page  # the names stand with the configuration


def test_bad_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bench" / "cells").mkdir(parents=True)
    for arguments, word in (
        (["report", str(tmp_path / "none")], "none"),
        (["report", str(tmp_path / "empty")], "results folder"),
        (["report", str(tmp_path / "bench")], "--markdown"),
        (["compare", str(tmp_path / "empty"), str(tmp_path / "empty")], "config.json"),
        (["report"], "required"),
    ):
        assert main([*arguments, "--out", str(tmp_path / "page.html")][: None if arguments[0] == "report" else 3]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ") and word in err and err.count("\n") == 1, err
    assert not (tmp_path / "page.html").exists()


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(f"# Results\n\nWords before.\n\n{BEGIN}\nold\n{END}\n\nWords after.\n")
    write_tables(page, [record(), record(algorithm="sbac-no-w", key="1" * 12, means={2.0: 50.0})])
    text = page.read_text()
    assert text.startswith("# Results\n\nWords before.") and text.endswith("Words after.\n") and "\nold\n" not in text
    assert "*99.6 ± 1.7*" in text and "| made | 1k + 1k |" in text and "sbac bench --tasks" in text
    pictures = re.findall(r"\]\((results/[^)]+\.svg)\)", text)
    assert len(pictures) == 2 and all((page.parent / picture).stat().st_size > 1000 for picture in pictures)
    before = {picture: (page.parent / picture).read_bytes() for picture in pictures}
    write_tables(page, [record(), record(algorithm="sbac-no-w", key="1" * 12, means={2.0: 50.0})])
    assert page.read_text() == text
    assert before == {picture: (page.parent / picture).read_bytes() for picture in pictures}


def test_no_cells_no_numbers() -> None:
    assert results_markdown([]) == "No cell has been measured yet."
    assert "not yet measured" in results_markdown([record(final=False)])


def test_results_folder_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_cell(tmp_path, record())
    markdown = tmp_path / "tables.md"
    assert main(["report", str(tmp_path), "--markdown", str(markdown)]) == 0
    assert "1 cell" in capsys.readouterr().out and BEGIN in markdown.read_text()
    for text in ("# My notes", f"{BEGIN}{END}{END}after", f"{END}{BEGIN}"):
        markdown.write_text(text)
        assert main(["report", str(tmp_path), "--markdown", str(markdown)]) == 2
        assert markdown.read_text() == text
    assert not Path("report.html").exists()


def test_markdown_shows_a_name_as_it_is() -> None:
    made = record_json()
    made["data"]["name"], made["data"]["kind"] = "[a](http://b) `c` <d>", "*e*"
    tables, _, commands = results_markdown([parsed(made)]).partition("```\n")
    assert r"\[a\](http://b) \`c\` &lt;d>" in tables and r"\*e\*" in tables
    assert not re.search(r"(?<!\\)[\[`]", tables.replace(" [", " ")) and "<d>" not in tables
    assert "'[a](http://b) `c` <d>'" in commands
