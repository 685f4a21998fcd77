"""The choice from SBAC's list against the rivals: on the first ladder their committed cells, on the second the policies
that were trained beside it.

python lab-notes/third-form/against.py lab-notes/third-form/choice lab-notes/table lab-notes/table/published \
    --developed-on lab-notes/table/development

First ladder: seeds 400 to 402 against seeds 10 to 14 (published: 0 to 4). Second: the same seeds, each rival on those
logs where it was trained, as its preset is (IQL temperature 3, ReBRAC policy penalty 0.01; on the first ladder 30 and
0.1). "A committee" is one policy a log, so it has no interval of seeds: its column is a mean.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from table import CLONE, COMMITTEE, RIVALS, candidates, rows_of, scores_of, seed_of, setting_of, taken

from sbac.lab.cells import read_cells
from sbac.lab.choosing import Difference, differences, holm
from sbac.lab.naming import collect
from sbac.lab.tables import score_tables
from sbac.results.statistics import Floats
from sbac.text import within

CUTS = {2: ("mu-1.0", "pi-0.125"), 3: ("mu-1.0", "pi-0.125", "expectile-0.25")}
"""The best lists of so many on development runs (`cuts.py`)."""
LENGTHS = {"iql": 3, "td3bc": 3, "rebrac": 2}
"""Of the rivals' lists."""
NAMES = {"iql": "iql", "td3bc": "td3-bc", "rebrac": "rebrac"}
ByLog = dict[str, Floats]


def ours(choices: Path, second: bool, column: str = "choice", settings: Sequence[str] | None = None) -> ByLog:
    """By log, a score for each seed. settings: of the list (None: all)."""
    found: ByLog = {}
    for folder in sorted(choices.iterdir()):
        if ("-td3-" in folder.name) == second and (told := rows_of(folder, "full", settings)):
            found[folder.name] = np.array([row[column] for row in told[1]])
    return found


def of_presets(choices: Path, committees: bool = False) -> dict[str, ByLog]:
    """On the second ladder, by method and log, with the settings of the preset: single policies, or their committee."""
    found: dict[str, ByLog] = {f"{rival}-one": {} for rival in RIVALS}
    for folder in sorted(path.parent for path in choices.glob("*-td3-made/truth.jsonl")):
        scores = scores_of(folder)
        for setting, by_log in found.items():
            those = [n for n in scores if setting_of(n) == setting and (seed_of(n) == COMMITTEE) == committees]
            if those:
                by_log[folder.name] = np.array([scores[name] for name in those])
    return found


def of_lists(rivals: Path, rival: str) -> dict[str, ByLog]:
    """What the rule takes of a rival's own list, for each seed; its one setting; and what it takes of committees."""
    found: dict[str, ByLog] = {"choice": {}, "one setting": {}, "committees": {}}
    for folder in sorted(path.parent for path in rivals.glob("*/judged-full.json")):
        judged, scores = candidates(folder / "judged-full.json"), scores_of(folder)
        scores[CLONE] = scores.get(f"{CLONE}-full", np.nan)
        by_seed: dict[str, list[str]] = {}
        for name in judged:
            if name.split("-")[0] == rival:
                by_seed.setdefault(seed_of(name), []).append(name)
        together = by_seed.pop(COMMITTEE, [])
        if not by_seed:
            continue
        one = f"{rival}-{next(iter(RIVALS[rival].values()))}"
        found["choice"][folder.name] = np.array([scores[taken(judged, n, RIVALS[rival])] for n in by_seed.values()])
        found["one setting"][folder.name] = np.array([scores[f"{one}-{seed}"] for seed in by_seed])
        found["committees"][folder.name] = np.array([scores[taken(judged, together, RIVALS[rival])]])
    return found


def told(method: str, theirs: np.floating[Any], against: Difference, clear: bool) -> str:
    fixed, drawn = within(*against.tasks_fixed), within(*against.tasks_drawn)
    return (
        f"{method} | {theirs:.1f} | {fixed} | {'clear' if clear else 'not clear'} after Holm | tasks drawn too {drawn}"
    )


def one_by_one(pairs: Mapping[str, tuple[ByLog, ByLog]]) -> None:
    """Of each rival ours and its own, on the logs that it has."""
    found: dict[str, tuple[list[str], Difference]] = {}
    for rival, (mine, theirs) in pairs.items():
        logs = [log for log in mine if log in theirs]
        found[rival] = logs, differences([mine[log] for log in logs], {rival: [theirs[log] for log in logs]})[rival]
    clear = holm({rival: against.p_value for rival, (_, against) in found.items()})
    for rival, (logs, against) in found.items():
        means = [np.mean([side[log].mean() for log in logs]) for side in pairs[rival]]
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


def main(choices: Path, cells: list[Path], developed_on: Path, rivals: Path | None) -> None:
    first, second = (ours(choices, ladder) for ladder in (False, True))
    for name, ladder in (("first", False), ("second", True)):
        found = {column: ours(choices, ladder, column) for column in ("one setting", "choice", "oracle")}
        found |= {f"of {count}": ours(choices, ladder, settings=cut) for count, cut in CUTS.items()}
        means = {words: np.mean([log.mean() for log in by_log.values()]) for words, by_log in found.items()}
        print(f"{name} ladder:", ", ".join(f"{words} {mean:.1f}" for words, mean in means.items()))
    tables = of_cells(cells, developed_on, first)
    for title, methods in tables.items():
        print(f"-- first ladder, {title}")
        for method, against in differences(list(first.values()), methods).items():
            print(told(method, np.mean([scores.mean() for scores in methods[method]]), against, against.holm))
    learned = {log: np.array([rows_of(choices / log, "full")[0]["learn"]]) for log in second}  # type: ignore[index]
    setting = ours(choices, True, "one setting")
    if rivals is None:
        beside_presets(choices, second, setting, learned)
    else:
        on_first = next(iter(tables.values()))
        first_of = {r: dict(zip(first, on_first[f"{NAMES[r]}@tuned"], strict=True)) for r in RIVALS}
        beside_lists(choices, rivals, first, first_of, second, setting, learned)


def beside_presets(choices: Path, second: ByLog, setting: ByLog, learned: ByLog) -> None:
    presets = of_presets(choices)
    for words, mine in (("the choice", second), ("one setting", setting)):
        print(f"-- second ladder, {words} and each rival as its preset is")
        one_by_one({rival: (mine, theirs) for rival, theirs in presets.items()})
    print("-- second ladder, what learn takes of all, and each rival's committee")
    means_of(learned, of_presets(choices, committees=True))


def beside_lists(
    choices: Path,
    rivals: Path,
    first: ByLog,
    first_of: Mapping[str, ByLog],
    second: ByLog,
    setting: ByLog,
    learned: ByLog,
) -> None:
    lists = {rival: of_lists(rivals, rival) for rival in RIVALS}
    ones = {rival: of_list["one setting"] for rival, of_list in lists.items()}
    print("-- second ladder, the choice of as many, and each rival's")
    cuts = {rival: ours(choices, True, settings=CUTS[count]) for rival, count in LENGTHS.items()}
    one_by_one({rival: (cuts[rival], of_list["choice"]) for rival, of_list in lists.items()})
    for words, mine in (("the choice", second), ("one setting", setting)):
        print(f"-- second ladder, {words} and each rival's one setting")
        one_by_one({rival: (mine, one) for rival, one in ones.items()})
    print("-- both ladders, the choice and each rival's one setting")
    one_by_one({rival: (first | second, first_of[rival] | one) for rival, one in ones.items()})
    print("-- second ladder, what learn takes of all, and what the rule takes of each rival's committees")
    means_of(learned, {rival: of_list["committees"] for rival, of_list in lists.items()})


def means_of(mine: ByLog, rivals: Mapping[str, ByLog]) -> None:
    """One number a log."""
    for rival, by_log in rivals.items():
        logs = [log for log in mine if log in by_log]
        means = np.mean([[mine[log].item(), by_log[log].item()] for log in logs], axis=0)
        print(f"{rival} | {len(logs)} logs | {means[0]:.1f} | {means[1]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("choices", type=Path)
    parser.add_argument("cells", type=Path, nargs="+")
    parser.add_argument("--developed-on", type=Path, required=True)
    parser.add_argument("--rivals", type=Path, help="their lists on the second ladder, of lanes.py --jobs")
    args = parser.parse_args()
    main(args.choices, args.cells, args.developed_on, args.rivals)
