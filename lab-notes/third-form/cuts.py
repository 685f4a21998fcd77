"""What the choice takes of shorter lists: those that are best on development runs, and what they have on fresh seeds.

python lab-notes/third-form/cuts.py

Development: the records of `lab-notes/judge/full` (four logs, seeds 103 to 105). Fresh: `choice` (seeds 400 to 402).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from table import CLONE, COMMITTEE, PRESET, RIVALS, candidates, scores_of, seed_of, setting_of, setting_told

from sbac.trust.choice import CandidateRecord
from sbac.trust.deciding import decide

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from bed import cases

HERE = Path(__file__).parent
KEPT = "mu-1.0"
"""The preset's setting: what is taken where the estimates cannot tell."""


class Judged(NamedTuple):
    record: CandidateRecord
    score: float


Log = Mapping[str, Judged]


def of_development(log: str) -> Log:
    found: dict[str, Judged] = {}
    for case in cases(HERE.parent / "judge" / "full", log, "all"):
        kind, alpha, seed = case["policy"].split("-", 2)
        record = replace(case["record"], setting=setting_told(kind, alpha))
        found[f"{kind}-{float(alpha)}-{seed}"] = Judged(record, case["score"])
    return found


def of_choice(folder: Path) -> Log:
    scores = scores_of(folder)
    scores[CLONE] = scores.get(f"{CLONE}-full", np.nan)
    judged = candidates(folder / "judged-full.json")
    return {name: Judged(record, scores[name]) for name, record in judged.items() if name.split("-")[0] not in RIVALS}


def taken_of(log: Log, settings: Sequence[str]) -> float:
    """The mean over seeds of what is taken of these settings."""
    seeds = sorted({seed_of(name) for name in log if name != CLONE} - {COMMITTEE})
    scores: list[float] = []
    for seed in seeds:
        own = [log[f"{setting}-{seed}"] for setting in settings]
        beside = [log[CLONE]] if CLONE in log else []
        label = decide([each.record for each in [*own, *beside]], PRESET, [each.record for each in own]).label
        scores.append(next(each.score for each in [*own, *beside] if each.record.label == label))
    return float(np.mean(scores))


def mean_taken(logs: Sequence[Log], settings: Sequence[str]) -> float:
    return float(np.mean([taken_of(log, settings) for log in logs]))


def main() -> None:
    names = sorted(path.stem for path in (HERE.parent / "judge" / "full" / "judged").glob("*-made.jsonl"))
    development = [of_development(name) for name in names]
    folders = sorted(path.parent for path in (HERE / "choice").glob("*/judged-full.json"))
    first, second = ([of_choice(f) for f in folders if ("-td3-" in f.name) == wanted] for wanted in (False, True))
    others = sorted({setting_of(name) for name in development[0]} - {KEPT})
    for count in range(1, len(others) + 1):
        lists = [(KEPT, *some) for some in combinations(others, count)]
        lists.sort(key=lambda settings: -mean_taken(development, settings))
        for settings in lists[:3]:
            means = ", ".join(f"{mean_taken(logs, settings):.1f}" for logs in (development, first, second))
            print(f"{len(settings)}: {means} | {' '.join(settings)}")


if __name__ == "__main__":
    main()
