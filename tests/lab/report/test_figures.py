"""The figures of the documentation: their words are text in the SVG, so that they can be read back."""

import re
from pathlib import Path

from report.synthetic import record
from sbac.lab.report.figures import GROUPS_IN_A_ROW, write_figures

BODIES = ("halfcheetah", "walker2d", "hopper")
TIERS = ("random", "medium", "medium-replay", "expert", "medium-expert")


def texts(path: Path) -> list[str]:
    return re.findall(r">([^<>\n]+)</text>", path.read_text())


def test_the_ablations_are_named_though_the_first_task_lacks_some(tmp_path: Path) -> None:
    records = [record(f"{body}-medium-made", "sbac", {2.0: 50.0}) for body in BODIES]
    records += [record(f"{body}-medium-made", "sbac-no-w", {2.0: 50.0}) for body in BODIES]
    records += [record("hopper-medium-made", name, {2.0: 50.0}) for name in ("sbac-q-pi", "one-step", "bc")]
    write_figures(records, tmp_path)
    words = texts(tmp_path / "ablations-1.svg")
    assert [words.count(name) for name in ("sbac", "sbac-no-w", "sbac-q-pi", "one-step", "bc")] == [1, 1, 1, 1, 0]


def test_stability_of_many_tasks_is_no_wider_than_that_of_a_row(tmp_path: Path) -> None:
    many = [record(f"{body}-{tier}-made", "bc", {1.0: 50.0}) for body in BODIES for tier in TIERS]
    widths = []
    for count in (GROUPS_IN_A_ROW - 1, len(many)):  # with the mean, one row and three
        write_figures(many[:count], tmp_path)
        svg = (tmp_path / "stability-1.svg").read_text()
        widths.append(re.findall(r'width="([\d.]+)pt"', svg)[0])
        words = texts(tmp_path / "stability-1.svg")
        assert words.count(f"mean of {count}") == words.count("HC-m") == 2
        assert words.count("worst episode") == words.count("worst of the last evaluations") == 1
        assert words.index(f"mean of {count}") < words.index("HC-m")
    assert widths[0] == widths[1]
