"""The kinds of critic with preset `quick` on small logs: the demo and four logs of noisy controllers.

python lab-notes/third-form/small.py OUT --seeds 120 140     (seeds 120 to 139; a row a policy in OUT/small.jsonl)

Every setting is played, its committees of three as well; OUT/policies/LOG has the files of the first three seeds.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import sbac
from sbac.evaluation.worker import Pool

sys.path.insert(0, str(Path(__file__).parents[1] / "small-worlds"))
from small_worlds import WORLDS, record

SETTINGS: list[dict[str, Any]] = [
    *({"critic": "mu", "alpha": alpha} for alpha in (1 / 16, 1 / 4, 1.0)),
    *({"critic": "expectile", "alpha": alpha} for alpha in (1 / 4, 1.0)),
    *({"critic": "pi", "alpha": alpha} for alpha in (1 / 8, 1 / 4, 1 / 2, 1.0)),
]
STEADY = np.array([1.0, 12.0, 1.5, 2.5])
"""A controller that balances for 1,000 steps without its noise, and for 37 with it."""


def steady(rows: int) -> sbac.Dataset:
    """InvertedPendulum by the steady controller, its noise twice the usual action."""
    env, rng = gymnasium.make("InvertedPendulum-v5"), np.random.default_rng(7)
    columns: list[list[Any]] = [[] for _ in range(6)]
    episode = 0
    while len(columns[0]) < rows:
        state, over = env.reset(seed=episode)[0], False
        episode += 1
        while not over:
            action = np.clip([STEADY @ state + rng.normal(0, 2.5)], -3, 3).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(action)
            for column, value in zip(columns, (state, action, reward, terminated, truncated, after), strict=True):
                column.append(value)
            state, over = after, terminated or truncated
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    arrays: dict[str, Any] = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    return sbac.Dataset(**arrays, action_low=-3.0, action_high=3.0, name="inverted-pendulum-steady")


def logs() -> dict[str, tuple[sbac.Dataset, str]]:
    named = {world.environment: (record(world), world.environment) for world in WORLDS}
    return {
        "hopper-demo": (sbac.load("hopper-demo"), "hopper-medium-v2"),
        "steady": (steady(6_000), WORLDS[0].environment),
    } | named


def main(out: Path, seeds: list[int], chosen: list[str], steps: list[int] | None, episodes: int) -> None:
    (out / "policies").mkdir(parents=True, exist_ok=True)
    with Pool() as pool, (out / "small.jsonl").open("a") as file:
        for log, (data, environment) in logs().items():
            if chosen and log not in chosen:
                continue
            began = time.monotonic()
            run = sbac.train(data, seeds=seeds, settings=SETTINGS, evaluate=False, progress=False, steps=steps)
            clones = sbac.train(data, "bc", seeds=seeds, evaluate=False, progress=False, steps=steps and steps[0])
            trained = time.monotonic() - began
            groups: dict[tuple[str, float | None], list[sbac.Policy]] = {("clone", None): list(clones.policies)}
            for policy in run.policies:
                groups.setdefault((policy.config["critic"], policy.config["alpha"]), []).append(policy)
            (out / "policies" / log).mkdir(exist_ok=True)
            asked = []
            for (critic, alpha), several in groups.items():
                named = [(str(p.config["seed"]), p) for p in several]
                thirds = [several[i : i + 3] for i in range(0, len(several) - 2, 3)]
                named += [(f"committee-{i}", sbac.committee(third)) for i, third in enumerate(thirds)]
                for name, policy in named:
                    path = out / "policies" / log / f"{critic}-{alpha}-{name}.safetensors"
                    policy.save(path)
                    asked.append((critic, alpha, name, path, pool.submit(path, environment, episodes, 10_000)))
            summary: dict[str, list[float]] = {}
            for critic, alpha, name, path, answer in asked:
                played = answer.result()
                row = {"log": log, "critic": critic, "alpha": alpha, "policy": name}
                numbers = {key: np.round(played[key], 2).tolist() for key in ("returns", "lengths")}
                file.write(json.dumps(row | numbers) + "\n")
                kind = "committees" if name.startswith("committee") else "single"
                summary.setdefault(f"{critic} {alpha} {kind}", []).append(float(np.mean(played["returns"])))
                if name not in {str(seed) for seed in seeds[:3]} | {"committee-0"}:
                    path.unlink()
            file.flush()
            seconds = time.monotonic() - began
            print(f"{log}: the log {data.returns.mean():.1f}; training {trained:.0f} s of {seconds:.0f}")
            for name, means in summary.items():
                spread = np.std(means, ddof=1) if len(means) > 1 else 0.0
                print(
                    f"  {name}: {np.mean(means):.1f} +- {spread:.1f} ({min(means):.1f} to {max(means):.1f})", flush=True
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", nargs=2, type=int, default=[120, 140])
    parser.add_argument("--logs", nargs="*", default=[])
    parser.add_argument("--steps", nargs=2, type=int)
    parser.add_argument("--episodes", type=int, default=10)
    args = parser.parse_args()
    main(args.out, list(range(*args.seeds)), args.logs, args.steps, args.episodes)
