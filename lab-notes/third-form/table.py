"""What the judge takes of the list, a log at a time, beside the truth.

python lab-notes/third-form/table.py OUT [--effort quick]       (OUT: of policies.py, which trained, judged and played)

A choice is made for each log and seed among the six single policies of SBAC's list and the clone; of committees once a
log. Where rivals were trained they are a choice of their own ("all methods"). Where the rule before has judged the same
policies (`lab-notes/judge/former.py`), what it takes stands beside.
"""

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from sbac.records import Setting, parse
from sbac.trust.choice import CLONE, CandidateRecord
from sbac.trust.deciding import CAN_TELL, decide

PRESET = {"critic": "mu", "alpha": 1.0}
COMMITTEE = "committee"
RIVALS = {"iql": {"temperature": 30.0}, "td3bc": {"alpha": 2.5}, "rebrac": {"policy_penalty": 0.1}}
"""The one setting of each, fixed on seeds 100 and 101 of four logs of the first ladder (`lab-notes/table`)."""


def candidates(path: Path) -> dict[str, CandidateRecord]:
    """By the file's name, which says the setting: that of a committee is its members'."""
    read: dict[str, CandidateRecord] = {}
    for row in json.loads(path.read_text()):
        name = row["label"]
        if name.startswith(CLONE):
            name = row["label"] = CLONE
        else:
            kind, alpha, _ = name.split("-", 2)
            row["setting"] = setting_told(kind, alpha)
        read[name] = parse(CandidateRecord, row, str(path))
    return read


def setting_told(kind: str, value: str) -> dict[str, str | float]:
    """Of a name. A rival without a value has its preset's: temperature 3, alpha 2.5, policy penalty 0.01."""
    if kind not in RIVALS:
        return {"critic": kind, "alpha": float(value)}
    return {"method": kind} | ({} if value == "one" else {next(iter(RIVALS[kind])): float(value)})


def taken(judged: Mapping[str, CandidateRecord], names: Iterable[str], preset: Mapping[str, Setting] = PRESET) -> str:
    """The name of what the rule takes among these and the clone, where it was judged."""
    among = [judged[name] for name in names]
    return decide([*among, *([judged[CLONE]] if CLONE in judged else [])], preset, among).label


def taken_by_learn(judged: Mapping[str, CandidateRecord], names: Sequence[str]) -> str:
    """What `sbac learn` takes of all seeds and their committees, where it trains the critic mu first."""
    first = [judged[name] for name in names if name.startswith("mu-") and seed_of(name) != COMMITTEE]
    label, decided, _ = decide([judged[name] for name in [*names, CLONE]], PRESET, first)
    if decided:
        return label
    return next(n for n in names if seed_of(n) == COMMITTEE and judged[n].setting == judged[label].setting)


def taken_before(told: Mapping[str, Mapping[str, Any]], preset: str, names: Sequence[str]) -> str:
    """By the rule before, which had no clone among its candidates: the largest promise, if it is clear."""
    sound = [name for name in names if name in told and not told[name]["warnings"]]
    best = max(sound, key=lambda name: told[name]["promise"], default=preset)
    if preset not in sound:
        return best
    clear = told[best]["promise"] - told[preset]["promise"] > CAN_TELL * told[best]["unit"]
    return best if clear else preset


def seed_of(name: str) -> str:
    return name.rsplit("-", 1)[1]


def setting_of(name: str) -> str:
    return name.rsplit("-", 1)[0]


def scores_of(folder: Path) -> dict[str, float]:
    """Of each policy that was played."""
    played = map(json.loads, (folder / "truth.jsonl").read_text().splitlines())
    return {row["policy"]: float(np.mean(row["scores"])) for row in played}


def rows_of(
    folder: Path, effort: str, settings: Sequence[str] | None = None
) -> tuple[dict[str, float], list[dict[str, Any]]] | None:
    """One log: its means, and a row for each seed. settings: of SBAC's list (None: all)."""
    told, truth = folder / f"judged-{effort}.json", folder / "truth.jsonl"
    if not (told.is_file() and truth.is_file()):
        return None
    judged = candidates(told)
    scores = scores_of(folder)
    scores[CLONE] = scores.get(f"{CLONE}-{effort}", np.nan)
    names = [name for name in judged if name != CLONE]
    of_list = [name for name in names if name.split("-")[0] not in RIVALS]
    if settings is not None:
        of_list = [name for name in of_list if setting_of(name) in settings]
    singles, committees = ([n for n in of_list if (seed_of(n) == COMMITTEE) is wanted] for wanted in (False, True))
    former = folder.parent / "former" / f"{folder.name}.json"
    before = json.loads(former.read_text()) if former.is_file() else None
    seeds: list[dict[str, Any]] = []
    for seed in sorted({seed_of(name) for name in singles}):
        own = [name for name in singles if seed_of(name) == seed]
        everyone = [name for name in names if seed_of(name) == seed]
        chosen = taken(judged, own)
        row = {"log": folder.name, "seed": seed, "takes": chosen, "choice": scores[chosen]}
        row["one setting"], row["oracle"] = scores[f"mu-1.0-{seed}"], max(scores[name] for name in own)
        if before is not None and set(own) <= set(before):
            row["before takes"] = taken_before(before, f"mu-1.0-{seed}", own)
            row["before"] = scores[row["before takes"]]
        if len(everyone) > len(own):
            row["takes of all methods"] = taken(judged, everyone)
            row["all methods"] = scores[row["takes of all methods"]]
            row["oracle of all"] = max(scores[name] for name in everyone)
        seeds.append(row)
    promised = [judged[name].promise for name in names]
    means = {
        "clone": scores[CLONE],
        "one setting": mean(scores[name] for name in singles if judged[name].setting == PRESET),
        **{
            rival: mean(score for n, score in scores.items() if n.startswith(rival) and seed_of(n) != COMMITTEE)
            for rival in RIVALS
        },
        **{key: mean(row.get(key, np.nan) for row in seeds) for key in COLUMNS},
        "best of all": max(scores[name] for name in of_list),
        "of all there is": scores[taken(judged, names)],
        "ranks": float(spearmanr(promised, [scores[name] for name in names])[0]),  # type: ignore[index]
    }
    if committees:
        means["committees: choice"] = scores[taken(judged, committees)]
        means["committees: oracle"] = max(scores[name] for name in committees)
        means["of all committees"] = scores[taken(judged, [name for name in names if seed_of(name) == COMMITTEE])]
        means["learn"] = scores[taken_by_learn(judged, of_list)]
    return means, seeds


COLUMNS = ("choice", "oracle", "before", "all methods", "oracle of all")


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return float(np.mean(listed)) if listed else math.nan


def interval(differences: Sequence[Sequence[float]], draws: int = 10_000) -> tuple[float, float, float]:
    """The mean over logs of each log's mean, and 95 % by drawing the seeds of each log anew."""
    rng, array = np.random.default_rng(0), np.array(differences)
    drawn = [np.mean([rng.choice(log, len(log)).mean() for log in array]) for _ in range(draws)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(array.mean()), float(low), float(high)


def main(out: Path, effort: str) -> None:
    logs: dict[str, dict[str, float]] = {}
    seeds: list[dict[str, Any]] = []
    for folder in sorted(out.iterdir()):
        if rows := rows_of(folder, effort):
            logs[folder.name], of_seeds = rows
            seeds += of_seeds
            for row in of_seeds:
                print({name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()})
    ladders = {
        "first ladder": [log for log in logs if "-td3-" not in log],
        "second ladder": [log for log in logs if "-td3-" in log],
    }
    titles = list(next(iter(logs.values())))
    means = {
        f"{name}, mean of {len(its)}": {title: mean(logs[log][title] for log in its) for title in titles}
        for name, its in ladders.items()
        if its
    }
    print("\n| log | " + " | ".join(titles) + " |\n|" + "---|" * (1 + len(titles)))
    for name, row in {**logs, **means}.items():
        print(f"| {name} | " + " | ".join("" if math.isnan(row[t]) else f"{row[t]:.1f}" for t in titles) + " |")
    for name, its in ladders.items():
        print("\n".join(f"{name}: {words}" for words in compared(seeds, its)))


PAIRS = (
    ("choice", "one setting"),
    ("choice", "oracle"),
    ("choice", "before"),
    ("before", "oracle"),
    ("all methods", "oracle of all"),
)


def compared(seeds: Sequence[Mapping[str, Any]], logs: Sequence[str]) -> Iterable[str]:
    for first, second in PAIRS:
        paired = [
            [r[first] - r[second] for r in seeds if r["log"] == log and {first, second} <= set(r)] for log in logs
        ]
        if paired := [each for each in paired if each]:
            apart, low, high = interval(paired)
            yield f"{first} less {second}, {len(paired)} logs: {apart:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    main(args.out, args.effort)
