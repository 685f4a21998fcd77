"""The judge of the longer CPU plans of `sbac learn` beside effort `quick`, on policies that fall.

python lab-notes/judge/bed.py policies --out BED --logs LOG --steps 500 2000 8000 --critic mu
python lab-notes/judge/roomy.py measure BED/data/LOG.npz BED/policies/LOG BED/truth/LOG.*.jsonl --effort quick roomy
python lab-notes/judge/roomy.py table

measure: judges the policies of a folder, and adds to `roomy.jsonl` what the judge says of each, beside what a whole
episode of it earns: minutes a log and effort on one core. table: prints a row a log and effort.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import sbac
from sbac.learning.plan import QUICK, ROOMY
from sbac.trust.estimates import conclude, judge
from sbac.trust.estimators import BESIDE
from sbac.trust.evidence import Facts, Question
from sbac.trust.log import read_log

FILE = Path(__file__).with_suffix(".jsonl")
EFFORTS = {"quick": QUICK, "roomy": ROOMY}
MISS = 20.0
"""What a miss costs in the interval score of 90 %, for each unit that the truth lies outside."""


def measure(log: Path, policies: Path, truths: Sequence[Path], efforts: Sequence[str]) -> None:
    rows = [json.loads(line) for file in truths for line in file.read_text().splitlines()]
    earned = {row["policy"]: float(np.mean(row["returns"])) for row in rows}
    files = [file for file in sorted(policies.glob("*.safetensors")) if file.stem in earned]
    data = read_log(sbac.load(log), 0.99)
    for effort in efforts:
        estimates = judge(Question(data, [sbac.Policy.load(file) for file in files], EFFORTS[effort]), BESIDE, True)
        with FILE.open("a") as lines:
            for file, estimate in zip(files, estimates, strict=True):
                facts = {name: float(f"{fact:.5g}") for name, fact in estimate.diagnostics.items()}
                row = {"log": log.stem, "effort": effort, "policy": file.stem, "episode": earned[file.stem]}
                lines.write(json.dumps(row | {"facts": facts}) + "\n")


def told(rows: Sequence[dict[str, Any]]) -> str:
    estimates = [conclude(Facts(row["facts"]), learned=True) for row in rows]
    truth = np.array([row["episode"] for row in rows])
    log, unit = rows[0]["facts"]["log_episode"], rows[0]["facts"]["episode_deviation"]
    kept = np.array([estimate.has_interval for estimate in estimates])
    low, high = np.array([(estimate.episode_low, estimate.episode_high) for estimate in estimates])[kept].T
    outside = np.maximum(0.0, low - truth[kept]) + np.maximum(0.0, truth[kept] - high)
    off = np.nanmean(np.abs(np.array([estimate.episode for estimate in estimates]) - truth)) / unit
    expected = [row["facts"]["model_episode"] for row in rows]
    cells = [
        f"{kept.sum()}/{len(rows)}",
        f"{(outside == 0).sum()}/{kept.sum()}",
        f"{(high - low).mean() / unit:.1f}",
        f"{(high - low + MISS * outside).mean() / unit:.1f}",
        f"{off:.2f}",
        f"{((low > log) & (truth[kept] <= log)).sum()}",
        f"{(~kept & (truth > log)).sum()}/{(truth > log).sum()}",
        f"{spearmanr(expected, truth)[0]:.2f}",
        f"{rows[0]['facts']['model_log_length']:.0f} of {rows[0]['facts']['log_length']:.0f}",
    ]
    return " | ".join(cells)


def table() -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in map(json.loads, FILE.read_text().splitlines()):
        groups[row["log"], row["effort"]].append(row)
    titles = ["log", "effort", "unwarned", "episodes hold", "width", "score", "off by", "above the log and wrong"]
    titles += ["better than the log, warned", "ranks", "steps of the log's episodes in the model"]
    print(f"| {' | '.join(titles)} |\n|" + "---|" * len(titles))
    for (log, effort), rows in sorted(groups.items()):
        print(f"| {log} | {effort} | {told(rows)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    stages = parser.add_subparsers(dest="stage", required=True)
    asked = stages.add_parser("measure")
    asked.add_argument("log", type=Path)
    asked.add_argument("policies", type=Path)
    asked.add_argument("truths", type=Path, nargs="+")
    asked.add_argument("--effort", nargs="+", default=["roomy"], choices=list(EFFORTS))
    stages.add_parser("table")
    args = parser.parse_args()
    if args.stage == "table":
        table()
    else:
        measure(args.log, args.policies, args.truths, args.effort)
