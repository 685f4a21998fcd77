"""The choice from SBAC's list against the rivals: on the first ladder their committed cells, on the second their own
lists, trained with the same seeds.

python lab-notes/third-form/against.py lab-notes/third-form/choice lab-notes/table lab-notes/table/published \
    --developed-on lab-notes/table/development --rivals lab-notes/third-form/rivals

First ladder: seeds 400 to 402 against seeds 10 to 14 (published: 0 to 4). Second: each rival's one setting is that of
the first ladder; TD3+BC, whose setting is its preset's, was trained beside SBAC, on eight logs. "A committee" is one
policy a log, so it has no interval of seeds: its column is a mean.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from table import (
    CLONE,
    COMMITTEE,
    RIVALS,
    candidates,
    rows_of,
    scores_of,
    seed_of,
    setting_of,
    taken,
    taken_by_learn,
)

from sbac.lab.cells import read_cells
from sbac.lab.choosing import Difference, differences, holm
from sbac.lab.naming import collect
from sbac.lab.tables import score_tables
from sbac.results.statistics import Floats
from sbac.text import within
from sbac.trust.choice import CandidateRecord

CUTS = {2: ("mu-1.0", "pi-0.125"), 3: ("mu-1.0", "pi-0.125", "expectile-0.25")}
"""The best lists of so many on development runs (`cuts.py`)."""
LENGTHS = {"iql": 3, "td3bc": 3, "rebrac": 2}
"""Of the rivals' lists."""
NAMES = {"iql": "iql", "td3bc": "td3-bc", "rebrac": "rebrac"}
KINDS = ("mu", "pi", "expectile")
"""Of SBAC's critics, by which its policies are named."""
ByLog = dict[str, Floats]


def ours(choices: Path, second: bool, column: str = "choice", settings: Sequence[str] | None = None) -> ByLog:
    """By log, a score for each seed. settings: of the list (None: all)."""
    found: ByLog = {}
    for folder in sorted(choices.iterdir()):
        if ("-td3-" in folder.name) == second and (told := rows_of(folder, "full", settings)):
            found[folder.name] = np.array([row[column] for row in told[1]])
    return found


def of_preset(choices: Path, rival: str, committees: bool = False) -> ByLog:
    """On the second ladder, as its preset is: single policies, or their committee."""
    found: ByLog = {}
    for folder in sorted(path.parent for path in choices.glob("*-td3-made/truth.jsonl")):
        scores = scores_of(folder)
        one = [n for n in scores if setting_of(n) == f"{rival}-one" and (seed_of(n) == COMMITTEE) == committees]
        if one:
            found[folder.name] = np.array([scores[name] for name in one])
    return found


def of_lists(rivals: Path, rival: str) -> dict[str, ByLog]:
    """Of a rival's own list, by log: its one setting; that setting's committee; where the log's policies were judged,
    what the rule takes for each seed and of the committees; the best of each seed."""
    found: dict[str, ByLog] = {name: {} for name in ("one setting", "committee", "choice", "committees", "oracle")}
    one = f"{rival}-{next(iter(RIVALS[rival].values()))}"
    for folder in sorted(path.parent for path in rivals.glob("*/truth.jsonl")):
        scores = scores_of(folder)
        by_seed: dict[str, list[str]] = {}
        for name in scores:
            if name.split("-")[0] == rival:
                by_seed.setdefault(seed_of(name), []).append(name)
        together = by_seed.pop(COMMITTEE, [])
        if not by_seed:
            continue
        found["one setting"][folder.name] = np.array([scores[f"{one}-{seed}"] for seed in sorted(by_seed)])
        found["committee"][folder.name] = np.array([scores[f"{one}-{COMMITTEE}"]])
        found["oracle"][folder.name] = np.array([max(scores[n] for n in by_seed[seed]) for seed in sorted(by_seed)])
        if (told := folder / "judged-full.json").is_file():
            judged = candidates(told)
            scores[CLONE] = scores.get(f"{CLONE}-full", np.nan)
            takes = [taken(judged, by_seed[seed], RIVALS[rival]) for seed in sorted(by_seed)]
            found["choice"][folder.name] = np.array([scores[name] for name in takes])
            found["committees"][folder.name] = np.array([scores[taken(judged, together, RIVALS[rival])]])
    return found


def settings_of(rivals: Path, rival: str) -> list[str]:
    """Each setting and its mean over logs, committees left out."""
    found: dict[str, list[float]] = {}
    for folder in sorted(path.parent for path in rivals.glob("*/truth.jsonl")):
        for name, score in scores_of(folder).items():
            if name.split("-")[0] == rival and seed_of(name) != COMMITTEE:
                found.setdefault(setting_of(name), []).append(score)
    return [f"{setting} {np.mean(scores):.1f}" for setting, scores in found.items()]


def of_both(choices: Path, rivals: Path, methods: Sequence[str]) -> tuple[ByLog, ByLog]:
    """What the rule takes of SBAC's list and these rivals' for each seed, and what learn would take of all seeds."""
    chosen: ByLog = {}
    learned: ByLog = {}
    for folder in sorted(path.parent for path in rivals.glob("*/judged-full.json")):
        judged: dict[str, CandidateRecord] = {}
        scores: dict[str, float] = {}
        for where, wanted in ((rivals, methods), (choices, list({*KINDS, CLONE}))):
            found = candidates(where / folder.name / "judged-full.json")
            judged |= {name: record for name, record in found.items() if name.split("-")[0] in wanted}
            scores |= scores_of(where / folder.name)
        scores[CLONE] = scores[f"{CLONE}-full"]
        names = [name for name in judged if name != CLONE]
        seeds = sorted(set(map(seed_of, names)) - {COMMITTEE})
        takes = [taken(judged, [name for name in names if seed_of(name) == seed]) for seed in seeds]
        chosen[folder.name] = np.array([scores[name] for name in takes])
        learned[folder.name] = np.array([scores[taken_by_learn(judged, names)]])
    return chosen, learned


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


def main(choices: Path, cells: list[Path], developed_on: Path, rivals: Path) -> None:
    first, second = (ours(choices, ladder) for ladder in (False, True))
    for name, ladder in (("first", False), ("second", True)):
        found = {column: ours(choices, ladder, column) for column in ("one setting", "choice", "oracle")}
        found |= {f"of {count}": ours(choices, ladder, settings=cut) for count, cut in CUTS.items()}
        print(f"{name} ladder:", ", ".join(f"{words} {mean_of(by_log):.1f}" for words, by_log in found.items()))
    tables = of_cells(cells, developed_on, first)
    for title, methods in tables.items():
        print(f"-- first ladder, {title}")
        for method, against in differences(list(first.values()), methods).items():
            print(told(method, np.mean([scores.mean() for scores in methods[method]]), against, against.holm))
    lists = {rival: of_lists(rivals, rival) for rival in RIVALS}
    lists["td3bc"] |= {"one setting": of_preset(choices, "td3bc"), "committee": of_preset(choices, "td3bc", True)}
    ones = {rival: of_list["one setting"] for rival, of_list in lists.items()}
    setting = ours(choices, True, "one setting")
    for words, mine in (("the choice", second), ("one setting", setting)):
        print(f"-- second ladder, {words} and each rival's one setting")
        one_by_one({rival: (mine, one) for rival, one in ones.items()})
    print("-- second ladder, by log: one setting, the choice, and each rival's one setting")
    for log in second:
        of_log = [setting[log], second[log], *(one.get(log, np.array([np.nan])) for one in ones.values())]
        print(" | ".join([log, *(f"{scores.mean():.1f}" for scores in of_log)]))
    print("-- second ladder, each of a rival's settings, and the best of each seed")
    for rival in ("iql", "rebrac"):
        print(" | ".join([rival, *settings_of(rivals, rival), f"best {mean_of(lists[rival]['oracle']):.1f}"]))
    print("-- second ladder, the choice of as many and each rival's, where they were judged")
    cuts = {rival: ours(choices, True, settings=CUTS[count]) for rival, count in LENGTHS.items()}
    one_by_one({rival: (cuts[rival], of_list["choice"]) for rival, of_list in lists.items() if of_list["choice"]})
    print("-- second ladder, SBAC's list and rivals' in one, where they were judged: the choice, what learn takes")
    for methods in ((), ("rebrac",), ("iql",), ("rebrac", "iql")):
        found = of_both(choices, rivals, methods)
        print(" | ".join([" and ".join(("sbac", *methods)), *(f"{mean_of(by_log):.1f}" for by_log in found)]))
    print("-- both ladders, the choice and each rival's one setting")
    on_first = next(iter(tables.values()))
    first_of = {rival: dict(zip(first, on_first[f"{NAMES[rival]}@tuned"], strict=True)) for rival in RIVALS}
    one_by_one({rival: (first | second, first_of[rival] | one) for rival, one in ones.items()})
    learned = {log: np.array([rows_of(choices / log, "full")[0]["learn"]]) for log in second}  # type: ignore[index]
    for words, of in (("each rival's committee", "committee"), ("what the rule takes of its committees", "committees")):
        print(f"-- second ladder, what learn takes of SBAC's list, and {words}")
        means_of(learned, {rival: of_list[of] for rival, of_list in lists.items() if of_list[of]})


def mean_of(by_log: ByLog) -> float:
    return float(np.mean([scores.mean() for scores in by_log.values()]))


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
    parser.add_argument("--rivals", type=Path, required=True, help="their lists on the second ladder (lanes.py --jobs)")
    args = parser.parse_args()
    main(args.choices, args.cells, args.developed_on, args.rivals)
