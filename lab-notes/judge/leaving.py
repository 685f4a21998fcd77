"""How far rollouts of the learned model leave what the log shows, beside what became of the policies.

python lab-notes/judge/leaving.py measure --out OUT --logs L ... [--effort quick]     (OUT: of bed.py, policies played)
python lab-notes/judge/leaving.py table --out lab-notes/judge/leaving --logs L ...
python lab-notes/judge/leaving.py choose --out OUT --states STATES --logs L ...     (OUT: judged; STATES: of measure)

Every ten steps, for each policy and for held-out episodes of the log that are acted again (`sbac.trust.knowing`): how
far the state lies from the nearest one of the log, how far the action lies from the clone's there, how much the members
disagree. OUT/judged/LOG.states.json has the means over rollouts that are still alive.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bed import DISCOUNT, MODEL, Cases, among_methods, cases, effort_of, promised
from scipy.stats import spearmanr

import sbac
from sbac.nn import pre_tanh
from sbac.nn.typed import in_chunks, jit
from sbac.trust.behaviour import NARROWEST, clone_policy, cloned
from sbac.trust.choice import CLONE
from sbac.trust.deciding import STRAYS
from sbac.trust.dynamics import disagreements, drawn_episodes
from sbac.trust.evidence import Question
from sbac.trust.knowing import EPISODES, action_scales, acts_again, residuals
from sbac.trust.log import read_log
from sbac.trust.model import ROLLOUTS, learned
from sbac.trust.walking import EARLY, advance, begin, world_of

EVERY, STEPS, SAMPLED = 10, 300, 20_000
TIMES = (1, 2, 3, 5, 8, 10, 20)


@jit
def nearest(states: jax.Array, log: jax.Array) -> jax.Array:
    """The distance of each state to the nearest of the log's."""
    squares = (log**2).sum(-1)
    apart = in_chunks(lambda state: (squares - 2 * log @ state).min() + (state**2).sum(), states, 256)
    return jnp.sqrt(jnp.maximum(apart, 0.0) / states.shape[1])


def snapshots(question: Question, world: Any, act: Any, constants: Any, states: Any, log: Any) -> list[dict[str, Any]]:
    walk = begin(world.model, states, act(constants, states, jnp.int32(0)))
    clone, (centre, half, mean, std) = question.once(cloned), action_scales(question.log)
    low, high = (centre - half - mean) / std, (centre + half - mean) / std
    told: list[dict[str, Any]] = []
    for _ in range(0, STEPS, EVERY):
        flat = walk.states.reshape(-1, walk.states.shape[-1])
        actions = jnp.clip(walk.actions.reshape(-1, walk.actions.shape[-1]), low, high)
        gaussian = clone(flat)
        bounded = jnp.asarray(question.log.units.within_bounds(np.asarray(actions)))
        apart = (pre_tanh(bounded) - gaussian.mean) / jnp.maximum(jnp.exp(gaussian.log_std), NARROWEST)
        parts = {
            "distance": nearest(flat, log),
            "departure": jnp.sqrt((apart**2).mean(-1)),
            "disagreement": disagreements(world.model, flat, actions),
            "alive": (walk.survived * walk.running).reshape(-1),
        }
        told.append({k: np.asarray(v, np.float64).reshape(walk.states.shape[:2]) for k, v in parts.items()})
        walk = advance(EVERY, act, constants, world, walk)
    return told


def summary(told: list[dict[str, Any]], number: int) -> dict[str, list[float]]:
    """Over the rollouts of one policy, at each time: the mean, weighted by being alive."""
    found: dict[str, list[float]] = {"alive": [float(each["alive"][number].mean()) for each in told]}
    for name in ("distance", "departure", "disagreement"):
        means: list[float] = []
        for each in told:
            weights, values = each["alive"][number], np.nan_to_num(each[name][number], posinf=1e6)
            means.append(float((weights * values).sum() / max(weights.sum(), 1e-9)))
        found[name] = means
    return found


def measure(out: Path, log_name: str, effort: str) -> None:
    path, began = out / "judged" / f"{log_name}.states.json", time.time()
    path.parent.mkdir(exist_ok=True)
    if path.is_file():
        return
    data = sbac.load(out / "data" / f"{log_name}.npz")
    files = sorted((out / "policies" / log_name).glob("*.safetensors"))
    question = Question(read_log(data, DISCOUNT), [], effort_of(effort))
    judged = [*map(sbac.Policy.load, files), clone_policy(question)]
    names = [*(file.stem for file in files), CLONE]
    question = replace(question, policies=judged)
    log, model, program = question.log, question.once(learned), question.actors.program
    assert program is not None
    t, rng = log.transitions, np.random.default_rng(0)
    limit = float(disagreements(model, t.states, t.actions).max())
    some = np.asarray(t.states)[rng.choice(len(t.states), min(SAMPLED, len(t.states)), replace=False)]
    chosen = np.unique(np.linspace(0, log.episodes - 1, min(ROLLOUTS, log.episodes)).astype(int))
    members = model.count
    starts = jnp.asarray(np.tile(np.asarray(log.starts)[chosen], (len(judged), members, 1)))
    steps = np.full(members * len(chosen), log.longest)
    world = world_of(question, model, np.repeat(np.arange(members), len(chosen)), steps, limit)
    told = snapshots(question, world, program.act, program.constants, starts, jnp.asarray(some))
    policies = {name: summary(told, i) for i, name in enumerate(names)}

    drawn, lengths = drawn_episodes(log, members, question.seed), np.diff(log.data.episodes, axis=1)[:, 0]
    held_out = [np.flatnonzero(times == 0) for times in drawn.weights]
    again = np.concatenate([rng.choice(left, EPISODES) for left in held_out])
    lasted = np.minimum(lengths, log.longest)
    world = world_of(question, model, np.repeat(np.arange(members), EPISODES), lasted[again], np.inf)
    constants = question.once(cloned), *action_scales(log), jnp.asarray(residuals(question, again, lasted[again]))
    told = snapshots(question, world, acts_again, constants, jnp.asarray(log.starts)[again][None], jnp.asarray(some))
    record = {"log": log_name, "limit": limit, "policies": policies, "acted again": summary(told, 0)}
    path.write_text(json.dumps(record))
    print(f"{log_name}: {time.time() - began:.0f} s", flush=True)


def table(out: Path, log_name: str) -> None:
    """Rank correlations with the score, and the policies beside the log's own episodes."""
    told = json.loads((out / "judged" / f"{log_name}.states.json").read_text())
    lines = [line for path in sorted((out / "truth").glob(f"{log_name}.*")) for line in path.read_text().splitlines()]
    scores = {row["policy"]: row["score"] for row in map(json.loads, lines)}
    names = sorted((name for name in told["policies"] if name in scores), key=lambda name: -scores[name])
    print(f"\n{log_name}, after " + ", ".join(f"{EVERY * time} steps" for time in TIMES))
    for part in ("distance", "departure", "disagreement"):
        values = np.array([[told["policies"][name][part][time] for time in TIMES] for name in names])
        ranks = [spearmanr(column, [scores[name] for name in names])[0] for column in values.T]  # type: ignore[index]
        again = [told["acted again"][part][time] for time in TIMES]
        print(f"{part}: ranks {np.round(ranks, 2)}; acted again {np.round(again, 2)}")
        for name, row in zip(names, values, strict=True):
            print(f"  {name} ({scores[name]:.1f}): {np.round(row, 2)}")


def chosen(out: Path, states: Path, logs: list[str], draws: int = 10_000) -> None:
    """What is taken among policies of one length: by the promise, by the promise of those near the log's states, by
    nearness alone."""
    by_log: Cases = {}
    for log in logs:
        told = json.loads((states / "judged" / f"{log}.states.json").read_text())["policies"]
        at = EARLY // EVERY
        # Before the judge's own clone was measured with the others, the one of the bed stood for it.
        limit = STRAYS * told.get(CLONE, told["bc-8000-seed200"])["distance"][at]
        by_log[log] = [
            c | {"strays": told[c["policy"]]["distance"][at], "limit": limit} for c in cases(out, log, MODEL)
        ]

    def near(case: dict[str, Any]) -> Any:
        within = case["strays"] <= case["limit"]
        return case["told"], within, case["promise"] if within else -case["strays"]

    orders = {"promise": promised, "near, then promise": near, "nearest": lambda case: -case["strays"]}
    taken = {name: among_methods(by_log, order) for name, order in orders.items()}
    for log in logs:
        ranks = [
            spearmanr([key(c) for c in by_log[log]], [c["score"] for c in by_log[log]])[0]  # type: ignore[index]
            for key in (lambda c: c["promise"], lambda c: -c["strays"], lambda c: -c["record"].diagnostics["distance"])
        ]
        rows = taken["promise"][log]
        words = [f"{name} {np.mean([row['taken'] for row in taken[name][log]]):.1f}" for name in orders]
        words += [f"{name} {np.mean([row[name] for row in rows]):.1f}" for name in rows[0] if name != "taken"]
        print(f"{log}: ranks {np.round(ranks, 2)}; " + ", ".join(words))
    means = {
        name: np.mean([row["taken"] for of_log in each.values() for row in of_log]) for name, each in taken.items()
    }
    print("all: " + ", ".join(f"{name} {value:.1f}" for name, value in means.items()))
    for name in ("promise", "iql"):
        apart = np.array(
            [
                np.mean(
                    [b["taken"] - (a["taken"] if name == "promise" else a[name]) for a, b in zip(one, two, strict=True)]
                )
                for one, two in zip(taken["promise"].values(), taken["near, then promise"].values(), strict=True)
            ]
        )
        low, high = np.quantile(np.random.default_rng(0).choice(apart, (draws, len(apart))).mean(1), [0.025, 0.975])
        print(f"near, then promise, less {name}: {apart.mean():.1f} [{low:.1f}, {high:.1f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "table", "choose"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", required=True)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--states", type=Path)
    options = parser.parse_args()
    if options.stage == "choose":
        chosen(options.out, options.states or options.out, options.logs)
        return
    for log in options.logs:
        if options.stage == "table":
            table(options.out, log)
        else:
            measure(options.out, log, options.effort)


if __name__ == "__main__":
    main()
