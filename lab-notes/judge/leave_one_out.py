"""The intervals of whole episodes with `UNKNOWN_EPISODE` found on the other logs, for each log in turn.

python lab-notes/judge/leave_one_out.py lab-notes/judge/small lab-notes/judge/full [--variant all]
"""

import argparse
from pathlib import Path
from typing import Any

import bed
import numpy as np

from sbac.trust import estimates

GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0)


def cases_at(unknown: float, folders: list[Path], variant: str) -> dict[tuple[Path, str], list[dict[str, Any]]]:
    estimates.UNKNOWN_EPISODE = unknown
    judged = [(folder, path.stem) for folder in folders for path in sorted((folder / "judged").glob("*.jsonl"))]
    return {(f, log): [c for c in bed.cases(f, log, variant) if c["told"]] for f, log in judged}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--variant", default="all")
    options = parser.parse_args()
    by_unknown = {unknown: cases_at(unknown, options.folders, options.variant) for unknown in GRID}

    def score(unknown: float, without: str) -> float:
        kept = [c for (_, log), listed in by_unknown[unknown].items() if log != without for c in listed]
        return float(np.mean([c["episode"].score for c in kept]))

    for folder in options.folders:
        logs = [log for place, log in by_unknown[GRID[0]] if place == folder]
        found = {log: min(GRID, key=lambda unknown, log=log: score(unknown, log)) for log in logs}
        tested = [c for log, unknown in found.items() for c in by_unknown[unknown][folder, log]]
        print(folder.name, found)
        print(
            "hold", bed.share_of(c["episode"].holds for c in tested),
            "fallers", bed.share_of(c["episode"].holds for c in tested if c["falls"]),
            "above the log and wrong", sum(c["episode"].above_and_wrong for c in tested),
            f"score {np.mean([c['episode'].score for c in tested]):.2f}",
        )  # fmt: skip


if __name__ == "__main__":
    main()
