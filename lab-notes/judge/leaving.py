"""How far rollouts of the learned model leave what the log shows, beside what became of the policies.

python lab-notes/judge/leaving.py measure --out OUT --logs L ... [--effort quick]     (OUT: of bed.py, policies played)
python lab-notes/judge/leaving.py table --out lab-notes/judge/leaving --logs L ...

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
from bed import DISCOUNT, effort_of
from scipy.stats import spearmanr

import sbac
from sbac.nn import pre_tanh
from sbac.nn.typed import in_chunks, jit
from sbac.trust.behaviour import NARROWEST, clone_policy, cloned
from sbac.trust.choice import CLONE
from sbac.trust.dynamics import disagreements, drawn_episodes
from sbac.trust.evidence import Question
from sbac.trust.knowing import EPISODES, action_scales, acts_again, residuals
from sbac.trust.log import read_log
from sbac.trust.model import ROLLOUTS, learned
from sbac.trust.walking import advance, begin, world_of

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "table"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", required=True)
    parser.add_argument("--effort", default="quick")
    options = parser.parse_args()
    for log in options.logs:
        if options.stage == "table":
            table(options.out, log)
        else:
            measure(options.out, log, options.effort)


if __name__ == "__main__":
    main()
