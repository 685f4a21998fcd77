"""python -m sbac.lab.worlds FOLDER: writes the worlds' logs, learns from them and judges; prints promise beside truth.

A log that lies in the folder is taken as it is, and so is what `sbac learn` wrote to the folder of the world's name.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.data import Dataset
from sbac.data.rules import parse
from sbac.errors import UserError
from sbac.lab.worlds import WORLDS
from sbac.lab.worlds.world import World, write_csv, write_log
from sbac.policy import Floats, Policy
from sbac.runs import Run
from sbac.trust.choice import CHOICE_FILE, CLONE, CandidateRecord, policy_of, read_choice
from sbac.trust.watching import END

FIRST_FRESH = 1_000_000
"""The seed of the first episode that is played; those of the log lie far below."""
RETURN = "return"
Row = dict[str, Any]
"""Of worlds.jsonl: a policy, what is promised of it and what happened, each by quantity: return, rules, end."""


def logged(world: World, folder: Path) -> Dataset:
    """The world's log as a stranger reads it, from its CSV file."""
    path = folder / f"{world.name}.csv"
    if not path.exists():
        write_csv(world, write_log(world), path)
    return sbac.load(path, columns=world.csv_columns, missing="hold", action_low=world.low, action_high=world.high)


def judged(world: World, folder: Path, episodes: int, minutes: float | None) -> list[Row]:
    """The log, what was learned from it, and controller B: what is promised without the world, what happens in it."""
    data = logged(world, folder)
    earned, ended = float(data.returns.mean()), float(data.terminals.sum() / len(data.episodes))
    log: Row = {"policy": "the log", "happened": rates(world, data.observations) | {RETURN: earned, END: ended}}
    answer = sbac.learn(data, minutes=minutes, out=folder / world.name, watch=world.watched)
    print(answer, flush=True)
    taken, policy = best_learned(folder / world.name)
    of_b = next(row for row in sbac.select(world.other, data, watch=world.watched).candidates if row.label != CLONE)
    rows = [
        promised("learned, not taken" if answer.keep else "learned", taken) | truth(world, policy, episodes),
        promised("controller B", of_b) | truth(world, world.other, episodes),
    ]
    return [{"world": world.name, **row} for row in (log, *rows)]


def best_learned(folder: Path) -> tuple[CandidateRecord, Policy]:
    """The best policy by the judge of `sbac learn`, whether its answer is to use it or to keep what there is."""
    home = next(folder.glob(f"runs/*/{CHOICE_FILE}")).parent
    run = Run.load(home)
    choice = read_choice(home, run.policies)
    assert choice is not None
    row = next(row for row in choice.candidates if row.label == choice.label)
    return row, policy_of(run, row)


def promised(name: str, row: CandidateRecord) -> Row:
    episode = [row.episode, row.episode_low, row.episode_high]
    watched = {each.name: [each.rate, each.low, each.high] for each in row.watched}
    return {"policy": name, "label": row.label, "promised": {RETURN: episode, **watched}, "warnings": row.warnings}


def truth(world: World, policy: Any, episodes: int) -> Row:
    """What a policy does in fresh episodes."""
    seen: list[Floats] = []

    def watching(observations: Floats) -> Any:
        seen.append(observations)
        return policy(observations)

    played = sbac.evaluate(watching, world.make, episodes=episodes, seed=FIRST_FRESH)
    ended = float(np.mean(np.array(played.lengths) < world.steps))
    return {
        "happened": rates(world, np.concatenate(seen)) | {RETURN: played.mean, END: ended},
        "error": float(np.std(played.returns, ddof=1) / np.sqrt(episodes)),
        "returns": played.returns,
    }


def rates(world: World, observations: Floats) -> dict[str, float]:
    """The share of the steps at which each watched rule holds."""
    columns = dict(zip(world.observations, observations.T, strict=True))
    return {rule: float(parse(rule, columns).holds(columns).mean()) for rule in world.watched}


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown, a line for each quantity, with the log's own number in it."""
    lines = ["| world | policy | what | the log | promised | happened |", "|---|---|---|---|---|---|"]
    log: dict[str, float] = {}
    for row in rows:
        log = log if "promised" in row else row["happened"]
        for what, promise in row.get("promised", {}).items():
            error = f" ± {row['error']:.1f}" if what == RETURN else ""
            happened = number(what, row["happened"][what]) + error
            cells = row["world"], row["policy"], what, number(what, log[what]), interval(what, promise), happened
            lines.append(f"| {' | '.join(cells)} |")
        lines += [f"| | | *{warning}* | | | |" for warning in row.get("warnings", [])]
    return "\n".join(lines)


def interval(what: str, numbers: Sequence[float | None]) -> str:
    value, *bounds = ["" if each is None else number(what, each) for each in numbers]
    return f"{value} [{', '.join(bounds)}]" if all(bounds) else value


def number(what: str, value: float) -> str:
    return f"{value:.1f}" if what == RETURN else f"{100 * value:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sbac.lab.worlds", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the logs, what is learned and worlds.jsonl lie")
    parser.add_argument("--worlds", nargs="+", choices=[*WORLDS], default=[*WORLDS], help="default: all")
    parser.add_argument("--episodes", type=int, default=200, help="fresh ones of each policy (default: 200)")
    parser.add_argument("--minutes", type=float, help="for learning from a log (default: that of sbac learn)")
    words = parser.parse_args()
    rows: list[Row] = []
    try:
        for name in words.worlds:
            rows += judged(WORLDS[name], words.folder, words.episodes, words.minutes)
            (words.folder / "worlds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(table(rows))


if __name__ == "__main__":
    main()
