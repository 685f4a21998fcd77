"""What a lasting departure from the log's actions costs in the learned model, beside what is taken off for optimism.

python lab-notes/judge/departing.py measure --out OUT --logs L ...     (OUT: of bed.py; effort quick)
python lab-notes/judge/departing.py table --out lab-notes/judge/once

The clone acts with its mean off by a constant, drawn once a rollout, of so many of its own deviations.
OUT/judged/LOG.departing.json has what episodes then earn. `table` counts the judge's deductions in the larger of the
log's deviation and what a departure by one deviation costs, and judges the bed again.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import bed
import jax.numpy as jnp
import numpy as np

import sbac
from sbac.trust import estimates
from sbac.trust.behaviour import NARROWEST, clone_policy, cloned
from sbac.trust.evidence import Facts, Question, find_effort
from sbac.trust.knowing import EPISODES, action_scales
from sbac.trust.log import JudgedLog, read_log
from sbac.trust.model import learned
from sbac.trust.walking import TOGETHER, advance, begin, episode_returns, world_of

DEPARTURES = (0.0, 0.25, 0.5, 1.0, 2.0)


def departing(constants: Any, states: Any, time: Any) -> Any:
    clone, centre, half, mean, std, apart = constants
    gaussian = clone(states)
    u = gaussian.mean + apart * jnp.maximum(jnp.exp(gaussian.log_std), NARROWEST)
    return (centre + half * jnp.tanh(u) - mean) / std


def costs(log: JudgedLog, effort: str = "quick") -> dict[str, Any]:
    """Of each departure, what rollouts earn on average, whole and discounted, and the deviation of the members."""
    question = Question(log, [], find_effort(effort))
    clone_policy(question)
    model = question.once(learned)
    chosen = np.unique(np.linspace(0, log.episodes - 1, min(EPISODES, log.episodes)).astype(int))
    drawn = np.random.default_rng(0).standard_normal((model.count * len(chosen), log.data.actions.shape[1]))
    apart = jnp.asarray(np.array(DEPARTURES)[:, None, None] * drawn, jnp.float32)
    states = jnp.asarray(np.tile(np.asarray(log.starts)[chosen], (len(DEPARTURES), model.count, 1)))
    member = np.repeat(np.arange(model.count), len(chosen))
    world = world_of(question, model, member, np.full(len(member), log.longest), np.inf)
    constants = question.once(cloned), *action_scales(log), apart
    walk = begin(model, states, departing(constants, states, jnp.int32(0)))
    for _ in range(0, log.longest, TOGETHER):
        walk = advance(TOGETHER, departing, constants, world, walk)
    told: dict[str, Any] = {"departures": DEPARTURES, "episode_deviation": float(episode_returns(log).std())}
    for name, earned in (("episodes", walk.earned), ("returns", walk.discounted)):
        by_member = np.asarray(earned[..., 0], np.float64).reshape(len(DEPARTURES), model.count, -1).mean(2)
        told[name], told[f"{name}_spread"] = by_member.mean(1).tolist(), by_member.std(1).tolist()
    return told


def measure(out: Path, name: str) -> None:
    path, began = out / "judged" / f"{name}.departing.json", time.time()
    if not path.is_file():
        path.write_text(json.dumps(costs(read_log(sbac.load(out / "data" / f"{name}.npz"), bed.DISCOUNT))))
        print(f"{name}: {time.time() - began:.0f} s", flush=True)


def cost_of_one(told: dict[str, Any], name: str) -> float:
    return told[name][0] - told[name][DEPARTURES.index(1.0)]


def table(out: Path) -> None:
    logs = sorted(path.name.removesuffix(".departing.json") for path in (out / "judged").glob("*.departing.json"))
    everything: dict[str, bed.Cases] = {"as it is": {}, "departures": {}}
    for log in logs:
        told = json.loads((out / "judged" / f"{log}.departing.json").read_text())
        costs_of = np.array(told["episodes"][0]) - told["episodes"]
        print(log, "costs in deviations of the log's episodes", np.round(costs_of / told["episode_deviation"], 2))

        def concluded(facts: Facts, *args: Any, told: dict[str, Any] = told, **named: Any) -> Any:
            whole = max(facts["episode_deviation"], cost_of_one(told, "episodes"))
            discounted = max(facts["return_deviation"], cost_of_one(told, "returns"))
            plain = estimates.conclude(facts, *args, **named)
            wide = estimates.conclude(
                Facts(facts | {"episode_deviation": whole, "return_deviation": discounted}), *args, **named
            )
            if not plain.has_interval:  # the rules for warnings keep their unit
                return plain
            bounds = ("gain_low", "gain_high", "episode_low", "episode_high")
            return replace(plain, **{bound: getattr(wide, bound) for bound in bounds})

        for rule, conclude in (("as it is", estimates.conclude), ("departures", concluded)):
            bed.conclude = conclude  # type: ignore[assignment]
            everything[rule][log] = list(bed.cases(out, log, bed.MODEL))
    for rule, by_log in everything.items():
        for log, listed in {**by_log, "all": [case for each in by_log.values() for case in each]}.items():
            numbers = bed.figures(listed)
            kept = ("told", "gain holds", "gain above and wrong", "gain score")
            kept += ("episode holds", "episode above and wrong", "episode score")
            print(rule, log, {name: numbers[name] if isinstance(numbers[name], str) else round(float(numbers[name]), 1)
                              for name in kept})  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "table"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=[])
    options = parser.parse_args()
    if options.stage == "table":
        table(options.out)
    for name in options.logs:
        measure(options.out, name)
