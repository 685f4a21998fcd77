"""What the judge promised of trained-out policies, beside what happened: shares of intervals that hold the truth.

python lab-notes/third-form/promises.py lab-notes/third-form/choice [--effort full]     (a folder of policies.py)

Discounted gains are compared where the truth has them. Intervals of the shares: 90 %, logs drawn anew.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from bed import Told, by_the_logs_spread, number

FALLS = 0.8
"""A policy falls if its episodes last less than this share of the log's longest."""
Case = dict[str, Any]


def cases(folder: Path, effort: str) -> list[Case]:
    played = {row["policy"]: row for row in map(json.loads, (folder / "truth.jsonl").read_text().splitlines())}
    judged = json.loads((folder / f"judged-{effort}.json").read_text())
    return [case_of(row, played[row["label"]]) for row in judged if row["label"] in played]


def case_of(row: Mapping[str, Any], played: Mapping[str, Any]) -> Case:
    known, lasts = row["diagnostics"], np.array(played["lengths"])
    end = next(iter(row["watched"]), {"rate": None, "low": None, "high": None, "log": 0.0})  # a log without ends
    gain = float(np.mean(played.get("discounted_returns", math.nan))) - known["log"]
    early, earned = float((lasts < 1_000).mean()), float(np.mean(played["returns"]))

    def said(record: Mapping[str, Any], names: Sequence[str], truth: float, log: float, unit: float) -> Told:
        mean, low, high = (number(record.get(name)) for name in names)
        return Told(mean, low, high, truth, log, unit)

    of_episode = "episode", "episode_low", "episode_high"
    return {
        "policy": row["label"],
        "told": row.get("gain_low") is not None,
        "falls": bool(lasts.mean() < FALLS * 1_000),
        "gain": said(row, ("gain", "gain_low", "gain_high"), gain, 0.0, known["return_deviation"]),
        "episode": said(row, of_episode, earned, known["log_episode"], known["episode_deviation"]),
        "ends": said(end, ("rate", "low", "high"), early, end["log"], 1.0),
    }


def told(listed: Sequence[Case], part: str) -> list[Case]:
    return [c for c in listed if c["told"] and math.isfinite(c[part].truth) and math.isfinite(c[part].low)]


def holds(part: str, fallers: bool = False) -> Callable[[Sequence[Case]], tuple[int, int]]:
    def count(listed: Sequence[Case]) -> tuple[int, int]:
        asked = [c for c in told(listed, part) if c["falls"] or not fallers]
        return sum(c[part].holds for c in asked), len(asked)

    return count


def warned(listed: Sequence[Case]) -> tuple[int, int]:
    better = [c for c in listed if c["episode"].truth > c["episode"].log]
    return sum(not c["told"] for c in better), len(better)


SHARES: dict[str, Callable[[Sequence[Case]], tuple[int, int]]] = {
    "gains hold": holds("gain"),
    "gains of fallers hold": holds("gain", fallers=True),
    "episodes hold": holds("episode"),
    "episodes of fallers hold": holds("episode", fallers=True),
    "early ends hold": holds("ends"),
    "better than the log and warned": warned,
}


def share(listed: Sequence[Case], count: Callable[[Sequence[Case]], tuple[int, int]]) -> float:
    some, of = count(listed)
    return some / of if of else math.nan


def scores(listed: Sequence[Case], part: str) -> tuple[float, float]:
    """Winkler's, of the judge's intervals and of the log's own spread."""
    asked = told(listed, part)
    return tuple(  # type: ignore[return-value]
        float(np.mean([way(c)[part].score for c in asked])) for way in (lambda c: c, by_the_logs_spread)
    )


def tell(name: str, logs: Mapping[str, Sequence[Case]]) -> None:
    rng, listed = np.random.default_rng(0), [c for log in logs.values() for c in log]
    print(f"\n{name}: {len(listed)} policies, {sum(c['falls'] for c in listed)} fall")
    draws = rng.integers(len(logs), size=(2_000, len(logs)))
    together = [[c for log in drawn for c in list(logs.values())[log]] for drawn in draws]
    for words, count in SHARES.items():
        some, of = count(listed)
        low, high = np.nanquantile([share(each, count) for each in together], [0.05, 0.95]) if of else (math.nan,) * 2
        print(f"  {words}: {some}/{of}" + (f", {some / of:.0%} [{low:.0%}, {high:.0%}]" if of else ""))
    for part in ("gain", "episode"):
        if told(listed, part):
            own, spread = scores(listed, part)
            print(f"  score of {part}s: {own:.1f}, the log's own spread {spread:.1f}")
    for log, of_log in logs.items():
        for part in ("gain", "episode"):
            for case in told(of_log, part):
                if case[part].above_and_wrong:
                    print(f"  above the log and wrong: {log}, {case['policy']}, {part}")


def main(out: Path, effort: str) -> None:
    files = ("truth.jsonl", f"judged-{effort}.json")
    by_log = {
        folder.name: cases(folder, effort)
        for folder in sorted(out.iterdir())
        if all((folder / file).is_file() for file in files)
    }
    for name, listed in by_log.items():
        words = (f"{title} {'/'.join(map(str, count(listed)))}" for title, count in SHARES.items())
        print(f"{name}: " + ", ".join(words))
    for second, name in enumerate(("first ladder", "second ladder")):
        if logs := {log: listed for log, listed in by_log.items() if ("-td3-" in log) == bool(second)}:
            tell(name, logs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--effort", default="full")
    args = parser.parse_args()
    main(args.out, args.effort)
