"""The figures of the documentation: their words are text in the SVG, so that they can be read back."""

import re
from pathlib import Path

from sbac.lab.report.figures import write_figures
from tests.report.synthetic import record

BODIES = ("halfcheetah", "walker2d", "hopper")


def texts(path: Path) -> list[str]:
    return re.findall(r">([^<>\n]+)</text>", path.read_text())


def test_the_ablations_are_named_though_the_first_task_lacks_some(tmp_path: Path) -> None:
    records = [record(f"{body}-medium-made", "sbac", {2.0: 50.0}) for body in BODIES]
    records += [record(f"{body}-medium-made", "sbac-no-w", {2.0: 50.0}) for body in BODIES]
    records += [record("hopper-medium-made", name, {2.0: 50.0}) for name in ("sbac-q-pi", "one-step", "bc")]
    write_figures(records, tmp_path)
    words = texts(tmp_path / "ablations-1.svg")
    assert [words.count(name) for name in ("sbac", "sbac-no-w", "sbac-q-pi", "one-step", "bc")] == [1, 1, 1, 1, 0]
