"""Logs whose rewards are mostly chance: the judge's interval beside the truth, which is known.

python lab-notes/judge/chance.py measure OUT [--worlds W ...]
python lab-notes/judge/chance.py table lab-notes/judge/chance

A world earns `reward(state, action)` and chance. A noisy controller writes its log; six policies are trained
on it for a minute and judged. `before`: the same evidence with deductions in the whole deviation of the log.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sbac
from sbac.trust.estimates import conclude
from sbac.trust.estimators import ESTIMATORS
from sbac.trust.evidence import Facts, Question, facts_of, find_effort
from sbac.trust.log import read_log

Numbers = NDArray[Any]
PLAYED = 100_000
"""Episodes that tell the truth, without the chance in rewards."""


def bowl(s: Numbers, a: Numbers) -> Numbers:
    best = 0.6 * np.tanh(s[:, 0] + 0.5 * s[:, 1])
    return s[:, 2] + 1.0 - 2.0 * (a[:, 0] - best) ** 2


def wide(s: Numbers, a: Numbers) -> Numbers:
    best = 0.7 * np.tanh(s[:, :3] * s[:, 3:6])
    return s[:, 6] + np.cos(s[:, 7]) - ((a - best) ** 2).sum(1) + 0.5 * a[:, 0] * a[:, 1]


class World(NamedTuple):
    reward: Callable[[Numbers, Numbers], Numbers]
    states: int
    actions: int
    rows: int
    steps: int
    """Of an episode: one, which ends by itself, or as many as a time limit allows."""
    ends: float
    """The chance of an end at each step."""
    noise: float


WORLDS = {
    "one step, bowl, 20,000 rows, noise 5": World(bowl, 3, 1, 20_000, 1, 1.0, 5.0),
    "one step, bowl, 20,000 rows, noise 20": World(bowl, 3, 1, 20_000, 1, 1.0, 20.0),
    "one step, bowl, 3,000 rows, noise 1": World(bowl, 3, 1, 3_000, 1, 1.0, 1.0),
    "one step, wide, 20,000 rows, no noise": World(wide, 8, 3, 20_000, 1, 1.0, 0.0),
    "one step, wide, 20,000 rows, noise 2": World(wide, 8, 3, 20_000, 1, 1.0, 2.0),
    "one step, wide, 3,000 rows, noise 2": World(wide, 8, 3, 3_000, 1, 1.0, 2.0),
    "nine steps, bowl, 20,000 rows, noise 1": World(bowl, 3, 1, 20_000, 9, 0.0, 1.0),
    "nine steps, bowl, 20,000 rows, noise 5": World(bowl, 3, 1, 20_000, 9, 0.0, 5.0),
    "nine steps, wide, 20,000 rows, noise 2": World(wide, 8, 3, 20_000, 9, 0.0, 2.0),
    "ends at 0.15, bowl, 20,000 rows, noise 5": World(bowl, 3, 1, 20_000, 100, 0.15, 5.0),
}


def played(world: World, act: Callable[[Numbers], Numbers], episodes: int, seed: int, chance: bool) -> list[Numbers]:
    """States, actions, rewards, ends, and whether the episode still went on: each (episodes, time, ...)."""
    rng = np.random.default_rng(seed)
    states, running, rows = rng.standard_normal((episodes, world.states)), np.ones(episodes, bool), []
    push = np.zeros(world.states)
    push[[1, -1]] = 0.2
    for _ in range(world.steps):
        actions = np.clip(act(states), -1, 1)
        rewards = world.reward(states, actions) + chance * world.noise * rng.standard_normal(episodes)
        ends = rng.random(episodes) < world.ends
        rows.append((states, actions, rewards, ends, running))
        running = running & ~ends
        states = 0.9 * states + push * actions[:, :1] + 0.3 * rng.standard_normal(states.shape)
    return [np.stack(column, 1) for column in zip(*rows, strict=True)]


def controller(world: World, seed: int) -> Callable[[Numbers], Numbers]:
    rng = np.random.default_rng(seed)

    def act(states: Numbers) -> Numbers:
        aim = 0.3 * states[:, : world.actions]
        return np.clip(aim + 0.35 * rng.standard_normal(aim.shape), -1, 1)

    return act


def truth(world: World, act: Callable[[Numbers], Numbers]) -> float:
    _, _, rewards, _, running = played(world, act, PLAYED, 1, False)
    return float((rewards * running).sum(1).mean())


def write_log(world: World, path: Path) -> None:
    episodes = int(world.rows * (world.ends or 1 / world.steps))
    states, actions, rewards, ends, running = played(world, controller(world, 3), episodes, 0, True)
    last = np.zeros_like(ends)
    last[:, -1] = True
    columns = {"observations": states, "actions": actions, "rewards": rewards}
    arrays: dict[str, Any] = {name: column[running].astype(np.float32) for name, column in columns.items()}
    np.savez(path, terminals=ends[running], timeouts=(last & (ends == 0))[running], **arrays)


def measure(out: Path, name: str) -> None:
    world, short = WORLDS[name], name.replace(",", "").replace(" ", "-")
    path, began = out / f"{short}.json", time.time()
    if path.is_file():
        return
    out.mkdir(parents=True, exist_ok=True)
    write_log(world, out / f"{short}.npz")
    data = sbac.load(out / f"{short}.npz")
    run = sbac.train(data, steps=3_000, seeds=2, out=out / short, alpha=[0.03, 0.125, 1.0], progress=False, resume=True)
    trained, question = time.time(), Question(read_log(data, 0.99), list(run.policies), find_effort("quick"))
    said = {name: estimator.evidence(question) for name, estimator in ESTIMATORS.items()}
    facts = [
        facts_of(question.log, {name: evidence[number] for name, evidence in said.items()})
        for number in range(len(run.policies))
    ]
    true = [truth(world, lambda s, p=policy: p(s.astype(np.float32))) for policy in run.policies]
    rounded = [{name: float(f"{fact:.6g}") for name, fact in told.items()} for told in facts]
    told = {"world": name, "log": truth(world, controller(world, 2)), "truth": true, "facts": rounded}
    path.write_text(json.dumps(told))
    print(f"{name}: trained in {trained - began:.0f} s, judged in {time.time() - trained:.0f} s", flush=True)


def table(out: Path) -> None:
    told = {read["world"]: read for read in (json.loads(path.read_text()) for path in out.glob("*.json"))}
    print(
        "| log | it earns | the best | widths before | now | hold before | now | surely better before | now | warned |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in filter(told.__contains__, WORLDS):
        read, cells = told[name], list[list[float]]()
        for luck in (False, True):
            kept = [{k: v for k, v in facts.items() if luck or "luck" not in k} for facts in read["facts"]]
            said = [(conclude(Facts(facts), True), true) for facts, true in zip(kept, read["truth"], strict=True)]
            given = [(each, true) for each, true in said if each.has_interval]
            held = [each.episode_low <= true <= each.episode_high for each, true in given]
            sure = [each.episode_low > facts["log_episode"] for (each, _), facts in zip(given, kept, strict=False)]
            widths = [each.episode_high - each.episode_low for each, _ in given]
            cells.append([sum(widths) / max(len(given), 1), sum(held), sum(sure), len(said) - len(given)])
        numbers = [
            f"{x:.2f} | {y:.2f}" if number == 0 else f"{x:.0f} | {y:.0f}"
            for number, (x, y) in enumerate(zip(*cells, strict=True))
        ]
        shown = " | ".join(numbers[:3]) if given else " | " * 5
        print(f"| {name} | {read['log']:.2f} | {max(read['truth']):.2f} | {shown} | {cells[1][3]:.0f} of {len(said)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "table"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    options = parser.parse_args()
    if options.stage == "table":
        table(options.out)
    else:
        for each in options.worlds:
            measure(options.out, each)
