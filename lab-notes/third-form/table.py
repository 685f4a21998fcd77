"""What the judge takes of the list, a log at a time, beside the truth.

python lab-notes/third-form/table.py OUT [--effort quick]       (OUT: of policies.py, which trained, judged and played)
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sbac.records import parse
from sbac.trust.choice import CLONE, CandidateRecord
from sbac.trust.deciding import decide

PRESET = {"critic": "mu", "alpha": 1.0}
COMMITTEE = "committee"


def candidates(path: Path) -> dict[str, CandidateRecord]:
    """By the file's name. A committee has the setting of its members, which its name says."""
    read: dict[str, CandidateRecord] = {}
    for row in json.loads(path.read_text()):
        name = row["label"]
        if name.startswith(CLONE):
            name = row["label"] = CLONE
        else:
            critic, alpha, _ = name.split("-", 2)
            row["setting"] = {"critic": critic, "alpha": float(alpha)}
        read[name] = parse(CandidateRecord, row, str(path))
    return read


def taken(judged: dict[str, CandidateRecord], names: Sequence[str]) -> str:
    """The name of what the rule takes among these and the clone."""
    return decide([judged[name] for name in [*names, CLONE]], PRESET, [judged[name] for name in names]).label


def main(out: Path, effort: str) -> None:
    rows: list[dict[str, float]] = []
    for folder in sorted(out.iterdir()):
        told, truth = folder / f"judged-{effort}.json", folder / "truth.jsonl"
        if not (told.is_file() and truth.is_file()):
            continue
        judged = candidates(told)
        played = [json.loads(line) for line in truth.read_text().splitlines()]
        scores = {row["policy"]: float(np.mean(row["scores"])) for row in played}
        scores[CLONE] = scores.get(f"{CLONE}-{effort}", np.nan)
        by_seed: dict[str, list[str]] = {}
        for name in judged:
            if name != CLONE:
                by_seed.setdefault(name.rsplit("-", 1)[1], []).append(name)
        committees = by_seed.pop(COMMITTEE)
        chosen = {seed: taken(judged, names) for seed, names in by_seed.items()}
        together = taken(judged, committees)
        row = {
            "clone": scores[CLONE],
            "one setting": np.mean([scores[f"mu-1.0-{seed}"] for seed in by_seed]),
            "choice": np.mean([scores[name] for name in chosen.values()]),
            "oracle": np.mean([max(scores[name] for name in names) for names in by_seed.values()]),
            "committees: choice": scores[together],
            "committees: oracle": max(scores[name] for name in committees),
            "choice of all": scores[taken(judged, [name for name in judged if name != CLONE])],
        }
        rows.append(row)
        print(folder.name, {name: round(float(value), 1) for name, value in row.items()})
        print("   takes", {seed: f"{name} {scores[name]:.1f}" for seed, name in chosen.items()}, together)
    means = {name: round(float(np.mean([row[name] for row in rows])), 1) for name in rows[0]}
    print(f"{len(rows)} logs", means)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    main(args.out, args.effort)
