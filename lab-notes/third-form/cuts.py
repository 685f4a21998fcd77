"""What the choice takes of shorter lists: those that are best on development runs, and what they have on fresh seeds.

python lab-notes/third-form/cuts.py

Development: the records of `lab-notes/judge/full` (four logs, seeds 103 to 105). Fresh: `choice` (seeds 400 to 402).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from table import COMMITTEE, seed_of, setting_of, setting_told, taken

from sbac.trust.choice import CandidateRecord

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from against import ours
from bed import cases

HERE = Path(__file__).parent
DEVELOPMENT = HERE.parent / "judge" / "full"
KEPT = "mu-1.0"
"""The preset's setting: what is taken where the estimates cannot tell."""
Log = tuple[Mapping[str, CandidateRecord], Mapping[str, float]]
"""By policy: what the judge says, and its score."""


def of_development(log: str) -> Log:
    listed = list(cases(DEVELOPMENT, log, "all"))
    settings = [setting_told(*case["policy"].split("-", 2)[:2]) for case in listed]
    records = [replace(case["record"], setting=setting) for case, setting in zip(listed, settings, strict=True)]
    return {r.label: r for r in records}, {case["policy"]: case["score"] for case in listed}


def taken_of(log: Log, settings: Sequence[str]) -> float:
    """The mean over seeds of what is taken of these settings."""
    records, scores = log
    seeds = sorted(set(map(seed_of, records)) - {COMMITTEE})
    return float(np.mean([scores[taken(records, [f"{s}-{seed}" for s in settings])] for seed in seeds]))


def main() -> None:
    logs = [of_development(path.stem) for path in sorted((DEVELOPMENT / "judged").glob("*-made.jsonl"))]
    others = sorted(set(map(setting_of, logs[0][0])) - {KEPT})
    for count in range(1, len(others) + 1):
        found = {
            (KEPT, *some): np.mean([taken_of(log, (KEPT, *some)) for log in logs])
            for some in combinations(others, count)
        }
        for settings in sorted(found, key=lambda settings: -found[settings])[:3]:
            fresh = [
                np.mean([log.mean() for log in ours(HERE / "choice", second, settings=settings).values()])
                for second in (False, True)
            ]
            print(f"{len(settings)}: {found[settings]:.1f}, {fresh[0]:.1f}, {fresh[1]:.1f} | {' '.join(settings)}")


if __name__ == "__main__":
    main()
