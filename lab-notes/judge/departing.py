"""What a lasting departure from the log's actions costs in the learned model, beside what is taken off for optimism.

python lab-notes/judge/departing.py measure --out OUT --logs L ... [--effort quick]     (OUT: of bed.py)
python lab-notes/judge/departing.py table --out lab-notes/judge/once

The clone acts with its mean off by a constant, drawn once a rollout, of so many of its own deviations.
OUT/judged/LOG.departing.json has what episodes then earn; `bed.py table` counts the judge's deductions in what one
deviation costs, where that is more than the log's own deviation.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from bed import DISCOUNT

import sbac
from sbac.trust.behaviour import clone_policy, cloned
from sbac.trust.evidence import Question, find_effort
from sbac.trust.knowing import EPISODES, action_scales, acts_again
from sbac.trust.log import read_log
from sbac.trust.model import learned
from sbac.trust.walking import TOGETHER, advance, begin, episode_returns, world_of

DEPARTURES = (0.0, 0.25, 0.5, 1.0, 2.0)


def costs(question: Question) -> dict[str, Any]:
    """Of each departure, what rollouts earn on average, whole and discounted, and the deviation of the members."""
    log = question.log
    clone_policy(question)
    model = question.once(learned)
    chosen = np.unique(np.linspace(0, log.episodes - 1, min(EPISODES, log.episodes)).astype(int))
    drawn = np.random.default_rng(0).standard_normal((model.count * len(chosen), log.data.actions.shape[1]))
    apart = jnp.asarray(np.array(DEPARTURES)[:, None, None] * drawn, jnp.float32)
    states = jnp.asarray(np.tile(np.asarray(log.starts)[chosen], (len(DEPARTURES), model.count, 1)))
    member = np.repeat(np.arange(model.count), len(chosen))
    world = world_of(question, model, member, np.full(len(member), log.longest), np.inf)
    nothing = jnp.zeros((1, *drawn.shape))
    constants = question.once(cloned), *action_scales(log), nothing, apart
    walk = begin(model, states, acts_again(constants, states, jnp.int32(0)))
    for _ in range(0, log.longest, TOGETHER):
        walk = advance(TOGETHER, acts_again, constants, world, walk)
    told: dict[str, Any] = {"departures": DEPARTURES, "episode_deviation": float(episode_returns(log).std())}
    for name, earned in (("episodes", walk.earned), ("returns", walk.discounted)):
        by_member = np.asarray(earned[..., 0], np.float64).reshape(len(DEPARTURES), model.count, -1).mean(2)
        told[name], told[f"{name}_spread"] = by_member.mean(1).tolist(), by_member.std(1).tolist()
    return told


def measure(out: Path, name: str, effort: str) -> None:
    path, began = out / "judged" / f"{name}.departing.json", time.time()
    if not path.is_file():
        log = read_log(sbac.load(out / "data" / f"{name}.npz"), DISCOUNT)
        path.write_text(json.dumps(costs(Question(log, [], find_effort(effort)))))
        print(f"{name}: {time.time() - began:.0f} s", flush=True)


def table(out: Path) -> None:
    """What departures cost, in deviations of the log's episodes."""
    for path in sorted((out / "judged").glob("*.departing.json")):
        told = json.loads(path.read_text())
        print(path.name, np.round((told["episodes"][0] - np.array(told["episodes"])) / told["episode_deviation"], 2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "table"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=[])
    parser.add_argument("--effort", default="quick")
    options = parser.parse_args()
    if options.stage == "table":
        table(options.out)
    for name in options.logs:
        measure(options.out, name, options.effort)
