"""The choice from SBAC's list against the rivals: on the first ladder their committed cells, on the second the policies
that were trained beside it.

python lab-notes/third-form/against.py lab-notes/third-form/choice lab-notes/table lab-notes/table/published \
    --developed-on lab-notes/table/development

First ladder: seeds 400 to 402 against seeds 10 to 14 (published: 0 to 4). Second: the same seeds, each rival on those
logs where it was trained. "A committee" is one policy a log, so it has no interval of seeds: its column is a mean.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from table import COMMITTEE, RIVALS, rows_of, scores_of, seed_of

from sbac.lab.cells import read_cells
from sbac.lab.choosing import Difference, differences, holm
from sbac.lab.naming import collect
from sbac.lab.tables import score_tables
from sbac.results.statistics import Floats
from sbac.text import within

CUTS = {2: ("mu-1.0", "pi-0.125"), 3: ("mu-1.0", "pi-0.125", "expectile-0.25")}
"""The preset's setting and others: the best lists of so many on seeds 103 to 105 of the four development logs."""
ByLog = dict[str, Floats]


def ours(choices: Path, second: bool, column: str = "choice", cut: int = 0) -> ByLog:
    """By log, a score for each seed. cut: of a list of so many (0: the whole list)."""
    found: ByLog = {}
    for folder in sorted(choices.iterdir()):
        if ("-td3-" in folder.name) == second and (told := rows_of(folder, "full", CUTS.get(cut))):
            found[folder.name] = np.array([row[column] for row in told[1]])
    return found


def of_rivals(choices: Path, committees: bool = False) -> dict[str, ByLog]:
    """On the second ladder, by method and log: single policies, or their committee."""
    found: dict[str, ByLog] = {rival: {} for rival in RIVALS}
    for folder in sorted(path.parent for path in choices.glob("*-td3-made/truth.jsonl")):
        scores = scores_of(folder)
        for rival, by_log in found.items():
            those = [n for n in scores if n.startswith(rival) and (seed_of(n) == COMMITTEE) == committees]
            if those:
                by_log[folder.name] = np.array([scores[name] for name in those])
    return found


def told(method: str, theirs: np.floating[Any], against: Difference, clear: bool) -> str:
    fixed, drawn = within(*against.tasks_fixed), within(*against.tasks_drawn)
    return (
        f"{method} | {theirs:.1f} | {fixed} | {'clear' if clear else 'not clear'} after Holm | tasks drawn too {drawn}"
    )


def one_by_one(mine: ByLog, rivals: Mapping[str, ByLog]) -> None:
    """Each rival on the logs that it has."""
    found: dict[str, tuple[list[str], Difference]] = {}
    for rival, theirs in rivals.items():
        logs = [log for log in mine if log in theirs]
        by_log = [theirs[log] for log in logs]
        found[rival] = logs, differences([mine[log] for log in logs], {rival: by_log})[rival]
    clear = holm({rival: against.p_value for rival, (_, against) in found.items()})
    for rival, (logs, against) in found.items():
        means = [np.mean([side[log].mean() for log in logs]) for side in (mine, rivals[rival])]
        print(told(f"{rival} | {len(logs)} logs | {means[0]:.1f}", means[1], against, clear[rival]))


def of_cells(cells: list[Path], developed_on: Path, logs: ByLog) -> dict[str, dict[str, list[Floats]]]:
    """By table and method, what the committed cells have on these logs, at 200,000 steps a phase."""
    records = [cell for folder in cells for cell in read_cells(folder)]
    tables: dict[str, dict[str, list[Floats]]] = {}
    for shown in score_tables(collect(records, read_cells(developed_on))):
        if shown.length == "200k steps a phase":
            tables[shown.title] = {
                method: [shown.chosen[log, method].scores for log in logs]
                for method in shown.methods
                if all((log, method) in shown.chosen for log in logs)
            }
    return {title: methods for title, methods in tables.items() if methods}


def main(choices: Path, cells: list[Path], developed_on: Path) -> None:
    first, second = (ours(choices, ladder) for ladder in (False, True))
    for name, ladder in (("first", False), ("second", True)):
        means = {
            words: np.mean([log.mean() for log in ours(choices, ladder, *how).values()])
            for words, how in {
                "one setting": ("one setting",),
                "choice": ("choice",),
                "of two": ("choice", 2),
                "of three": ("choice", 3),
                "oracle": ("oracle",),
            }.items()
        }
        print(f"{name} ladder:", ", ".join(f"{words} {mean:.1f}" for words, mean in means.items()))
    tables = of_cells(cells, developed_on, first)
    for title, rivals in tables.items():
        print(f"-- first ladder, {title}")
        for method, against in differences(list(first.values()), rivals).items():
            print(told(method, np.mean([scores.mean() for scores in rivals[method]]), against, against.holm))
    beside = of_rivals(choices)
    print("-- second ladder, the choice and each rival's one setting")
    one_by_one(second, beside)
    print("-- second ladder, one setting and each rival's")
    one_by_one(ours(choices, True, "one setting"), beside)
    singles = next(iter(tables.values()))
    on_first = {r: dict(zip(first, singles[f"{r.replace('td3bc', 'td3-bc')}@tuned"], strict=True)) for r in RIVALS}
    print("-- both ladders, the choice and each rival's one setting")
    one_by_one(first | second, {rival: on_first[rival] | beside[rival] for rival in RIVALS})
    print("-- second ladder, what learn takes of all, and each rival's committee")
    learned = {folder: rows_of(choices / folder, "full")[0]["learn"] for folder in second}  # type: ignore[index]
    for rival, by_log in of_rivals(choices, committees=True).items():
        logs = [log for log in second if log in by_log]
        means = np.mean([[learned[log], by_log[log].item()] for log in logs], axis=0)
        print(f"{rival} | {len(logs)} logs | {means[0]:.1f} | {means[1]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("choices", type=Path)
    parser.add_argument("cells", type=Path, nargs="+")
    parser.add_argument("--developed-on", type=Path, required=True)
    args = parser.parse_args()
    main(args.choices, args.cells, args.developed_on)
