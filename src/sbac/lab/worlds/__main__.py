"""python -m sbac.lab.worlds FOLDER: writes the worlds' logs, learns from them and judges; prints promise beside truth.

Logs, runs and answers that lie in the folder already are taken as they are.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.data import Dataset
from sbac.errors import UserError
from sbac.lab.worlds import WORLDS
from sbac.lab.worlds.world import World, csv_columns, write_csv, write_log
from sbac.policy import Policy
from sbac.runs import Run

FIRST_FRESH = 1_000_000
"""The seed of the first episode that is played; those of the log lie far below."""


def logged(world: World, folder: Path) -> Dataset:
    """The world's log as a stranger reads it, from its CSV file."""
    path = folder / f"{world.name}.csv"
    if not path.exists():
        write_csv(world, write_log(world, world.episodes, seed=0), path)
    columns = csv_columns(world)
    return sbac.load(path, columns=columns, missing="hold", action_low=world.low, action_high=world.high)


def learned(world: World, data: Dataset, folder: Path, steps: Sequence[int] | None) -> list[Run | Policy]:
    """What the product makes of the log: a policy, or none where its answer is to keep what wrote the log."""
    if steps is not None:
        out = folder / world.name
        return [sbac.train(data, alpha=[0.25, 1.0], steps=steps, evaluate=False, out=out, resume=True)]
    policy = sbac.learn(data, out=folder / f"{world.name}-learned").policy
    return [] if policy is None else [policy]


def judged(world: World, folder: Path, episodes: int, steps: Sequence[int] | None) -> list[dict[str, Any]]:
    """What was learned and controller B: what is promised of them without the world, and what they do in it."""
    data = logged(world, folder)
    candidates = learned(world, data, folder, steps)
    choice = sbac.select([*candidates, world.other], data, watch=[*world.watched])
    policies = [policy for each in candidates for policy in (each.policies if isinstance(each, Run) else [each])]
    of_hash = {policy.hash: policy for policy in (*policies, choice.clone)}
    best = next(row for row in choice.candidates if row.policy is not None)
    other = next(row for row in choice.candidates if row.policy is None)  # a function has no hash
    rows = [{"world": world.name, "policy": "the log", "rows": len(data), **of_log(world, data)}]
    for row, policy in ((best, of_hash[best.policy or ""]), (other, world.other)):
        promised = {name: getattr(row, name) for name in ("episode", "episode_low", "episode_high", "warnings")}
        watched = {"promised_watched": [asdict(each) for each in row.watched]}
        rows.append({"world": world.name, "policy": row.label, **promised, **watched, **truth(world, policy, episodes)})
    return rows


def of_log(world: World, data: Dataset) -> dict[str, Any]:
    """The log in the units of the truth."""
    rates = {rule: float(holds(data.observations).mean()) for rule, holds in world.watched.items()}
    ends = float(data.terminals.sum() / len(data.episodes))
    return {"truth": float(data.returns.mean()), "ends": ends, "watched": rates}


def truth(world: World, policy: Any, episodes: int) -> dict[str, Any]:
    """What a policy does in fresh episodes."""
    seen: list[Any] = []

    def watching(observations: Any) -> Any:
        seen.append(observations)
        return policy(observations)

    played = sbac.evaluate(watching, world.make, episodes=episodes, seed=FIRST_FRESH)
    rates = {rule: float(holds(np.concatenate(seen)).mean()) for rule, holds in world.watched.items()}
    return {
        "truth": played.mean,
        "error": float(np.std(played.returns, ddof=1) / np.sqrt(episodes)),
        "ends": float(np.mean(np.array(played.lengths) < world.steps)),
        "watched": rates,
        "returns": played.returns,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| world | policy | promise | truth | ends early | watched | warnings |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        promise = "" if row.get("episode") is None else f"{row['episode']:.1f}"
        if row.get("episode_low") is not None:
            promise += f" [{row['episode_low']:.1f}, {row['episode_high']:.1f}]"
        error = f" ± {row['error']:.1f}" if "error" in row else ""
        watched = "; ".join(f"{rule}: {rate:.1%}" for rule, rate in row["watched"].items())
        cells = [row["world"], row["policy"], promise, f"{row['truth']:.1f}{error}", f"{row['ends']:.1%}", watched]
        lines.append(f"| {' | '.join(cells)} | {'; '.join(row.get('warnings', []))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sbac.lab.worlds", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the logs, the runs and worlds.jsonl lie")
    parser.add_argument("--worlds", nargs="+", choices=[*WORLDS], default=[*WORLDS], help="default: all")
    parser.add_argument("--episodes", type=int, default=200, help="fresh ones of each policy (default: 200)")
    parser.add_argument("--steps", type=int, nargs="+", help="train this long in place of sbac.learn")
    words = parser.parse_args()
    rows: list[dict[str, Any]] = []
    try:
        for name in words.worlds:
            rows += judged(WORLDS[name], words.folder, words.episodes, words.steps)
            (words.folder / "worlds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(table(rows))


if __name__ == "__main__":
    main()
