"""What else was asked of the committed records of finished trainings; every part prints its own figures.

python lab-notes/third-form/asked.py beside         the choice beside its log and its clone
python lab-notes/third-form/asked.py spread         hopper-medium-replay with fifteen seeds
python lab-notes/third-form/asked.py committees     a committee less the mean of its members
python lab-notes/third-form/asked.py strays         how far rollouts stray, in times the clone's
python lab-notes/third-form/asked.py departures     were deductions counted in what a lasting departure costs
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from promises import case_of, holds
from table import CLONE, COMMITTEE, RIVALS, candidates, rows_of, scores_of, seed_of, setting_of, taken

from sbac.environments.tasks import normalised_score
from sbac.records import as_json
from sbac.trust.choosing import candidate_record
from sbac.trust.estimates import conclude
from sbac.trust.evidence import Facts

HERE = Path(__file__).parent
FIFTEEN = HERE / "choice-fifteen" / "hopper-medium-replay-made"
LIMITS = (1.1, 1.3, 1.5, 2.0, 3.0)


def logs() -> Iterator[Path]:
    return (path.parent for path in sorted((HERE / "choice").glob("*/judged-full.json")))


def beside() -> None:
    for folder in logs():
        means, seeds = rows_of(folder, "full")  # type: ignore[misc]
        chosen = np.array([row["choice"] for row in seeds])
        logged = next(iter(candidates(folder / "judged-full.json").values())).diagnostics["log_episode"]
        error = chosen.std(ddof=1) / np.sqrt(len(chosen))
        score = float(normalised_score(folder.name, [logged])[0])
        print(
            f"{folder.name}: the log {score:.1f}, clone {means['clone']:.1f}, choice {chosen.mean():.1f} ± {error:.1f}"
        )


def spread() -> None:
    seeds = [row for folder in (HERE / "choice" / FIFTEEN.name, FIFTEEN) for row in rows_of(folder, "full")[1]]  # type: ignore[index]
    for name in ("choice", "one setting", "oracle"):
        scores = np.array([row[name] for row in seeds])
        words = f"{scores.mean():.1f} ± {scores.std(ddof=1):.1f}, {scores.min():.1f} to {scores.max():.1f}"
        print(f"{len(scores)} seeds, {name}: {words}")


def committees() -> None:
    apart: dict[str, list[tuple[float, str]]] = {}
    for folder in logs():
        scores = scores_of(folder)
        for setting in {setting_of(name) for name in scores if seed_of(name) == COMMITTEE}:
            single = [v for name, v in scores.items() if setting_of(name) == setting and seed_of(name) != COMMITTEE]
            apart.setdefault(setting, []).append(
                (scores[f"{setting}-{COMMITTEE}"] - float(np.mean(single)), folder.name)
            )
    for setting, listed in sorted(apart.items()):
        numbers, worst = [number for number, _ in listed], min(listed)
        words = f"{np.mean(numbers):+.1f}, {sum(n >= -0.5 for n in numbers)} gain or are level"
        print(f"{setting}, {len(listed)} logs: {words}, the least {worst[0]:+.1f} on {worst[1]}")


def strays() -> None:
    for folder in [*logs(), FIFTEEN]:
        judged, scores = candidates(folder / "judged-full.json"), scores_of(folder)
        far = {name: record.diagnostics.get("model_strays") for name, record in judged.items()}
        own, ours = far.pop(CLONE), [name for name in far if name.split("-")[0] not in RIVALS]
        if own is None or any(far[name] is None for name in ours):
            continue
        times = {name: far[name] / own for name in ours}  # type: ignore[operator]
        bad, good = ([times[n] for n in ours if (scores[n] < 20) == wanted] for wanted in (True, False))
        for words, listed in (("below 20 points", bad), ("the others", good)):
            if listed:
                print(f"{folder.name}, {len(listed)} {words}: {min(listed):.2f} to {max(listed):.2f}")
        scores[CLONE] = scores.get(f"{CLONE}-full", np.nan)
        for limit in LIMITS:
            chosen = []
            for seed in sorted(set(map(seed_of, ours)) - {COMMITTEE}):
                everyone = [name for name in ours if seed_of(name) == seed]
                near = [name for name in everyone if times[name] <= limit] or everyone
                chosen.append(scores[taken(judged, near)])
            print(f"  of those within {limit}: {np.mean(chosen):.1f}")


def departures() -> None:
    for file in sorted((HERE.parent / "judge" / "full" / "judged").glob("*-td3-made.departing.json")):
        folder, cost = HERE / "choice" / file.name.removesuffix(".departing.json"), json.loads(file.read_text())
        one = cost["departures"].index(1.0)
        lost = {
            "model_departure": cost["episodes"][0] - cost["episodes"][one],
            "model_departure_discounted": cost["returns"][0] - cost["returns"][one],
        }
        played = {row["policy"]: row for row in map(json.loads, (folder / "truth.jsonl").read_text().splitlines())}
        rows = json.loads((folder / "judged-full.json").read_text())
        for words, counted in (("as it is", {}), ("counted", lost)):
            again = [
                candidate_record(row["label"], 0, {}, conclude(Facts(row["diagnostics"] | counted), learned=True))
                for row in rows
            ]
            listed = [case_of(as_json(record), played[record.label]) for record in again]
            widths = [c["episode"].high - c["episode"].low for c in listed if c["told"]]
            shares = {
                name: "/".join(map(str, count(listed)))
                for name, count in {
                    "gains": holds("gain"),
                    "episodes": holds("episode"),
                    "episodes of fallers": holds("episode", fallers=True),
                }.items()
            }
            print(folder.name, words, shares, f"mean width {np.mean(widths):.0f}")


if __name__ == "__main__":
    {part.__name__: part for part in (beside, spread, committees, strays, departures)}[sys.argv[1]]()
