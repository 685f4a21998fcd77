"""How far rollouts of the learned model leave what the log shows, beside what became of the policies.

python lab-notes/judge/leaving.py measure --out OUT --logs L ... [--effort quick]     (OUT: of bed.py, policies played)
python lab-notes/judge/leaving.py table --out lab-notes/judge/leaving --logs L ...
python lab-notes/judge/leaving.py choose --out OUT --logs L ...     (OUT: judged by bed.py, and measured)
python lab-notes/judge/leaving.py beyond

Every ten steps, for each policy and for held-out episodes of the log that are acted again (`sbac.trust.knowing`): how
far the state lies from the nearest one of the log, how far the action lies from the clone's there, how much the members
disagree. OUT/judged/LOG.states.json has the means over rollouts that are still alive.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from bed import DISCOUNT, MODEL, Cases, among_methods, cases, effort_of, promised
from scipy.stats import spearmanr

import sbac
from sbac.nn import pre_tanh
from sbac.trust.behaviour import NARROWEST, clone_policy, cloned
from sbac.trust.choice import CLONE
from sbac.trust.deciding import STRAYS
from sbac.trust.doubts import BEYOND
from sbac.trust.dynamics import disagreements, drawn_episodes
from sbac.trust.evidence import Question
from sbac.trust.knowing import EPISODES, action_scales, acts_again, residuals
from sbac.trust.log import read_log
from sbac.trust.model import ROLLOUTS, learned, nearest
from sbac.trust.walking import EARLY, advance, begin, world_of

EVERY, STEPS, SAMPLED = 10, 300, 20_000
TIMES = (1, 2, 3, 5, 8, 10, 20)
Order = Callable[[dict[str, Any]], Any]


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
    own = jnp.asarray(residuals(question, again, lasted[again]))
    constants = question.once(cloned), *action_scales(log), own, jnp.zeros((1, len(again), own.shape[-1]))
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


def near(times: float) -> Order:
    """The promise of those at most so many times as far from the log's states as the clone; behind them the nearest."""

    def order(case: dict[str, Any]) -> Any:
        within = case["strays"] <= times
        return case["told"], within, case["promise"] if within else -case["strays"]

    return order


def less(deviations: float) -> Order:
    """The promise, less so many deviations for each time farther than the clone."""
    return lambda c: (c["told"], c["promise"] - deviations * c["episode"].unit * max(0.0, c["strays on average"] - 1))


ORDERS: dict[str, Order] = {
    "promise": promised,
    "near": near(STRAYS),
    **{f"within {times:g}": near(times) for times in (1.2, 1.3, 1.5, 2.0)},
    **{f"less {deviations:g}": less(deviations) for deviations in (0.5, 1, 2, 4, 8)},
    "nearest states": lambda case: -case["strays"],
    "nearest actions": lambda case: -case["record"].diagnostics["distance"],
}


def judged_cases(out: Path, log: str) -> list[dict[str, Any]]:
    """Each policy with how many times as far as the clone it strays, after 50 steps and on average over 40 to 80."""
    told = json.loads((out / "judged" / f"{log}.states.json").read_text())["policies"]

    def strays(name: str) -> tuple[float, float]:
        distance = told[name]["distance"]
        return distance[EARLY // EVERY], float(np.mean(distance[4:9]))

    # Before the judge's own clone was measured with the others, the one of the bed stood for it.
    own = strays(CLONE if CLONE in told else "bc-8000-seed200")
    return [
        case | {"strays": after / own[0], "strays on average": average / own[1]}
        for case in cases(out, log, MODEL)
        for after, average in [strays(case["policy"])]
    ]


def choose(out: Path, logs: list[str], draws: int = 10_000) -> None:
    """Ranks, and what each order takes among policies of one length."""
    by_log: Cases = {log: judged_cases(out, log) for log in logs}
    taken = {
        name: {log: np.mean([row["taken"] for row in rows]) for log, rows in among_methods(by_log, order).items()}
        for name, order in ORDERS.items()
    }
    methods = {
        name: {log: np.mean([row[name] for row in rows]) for log, rows in among_methods(by_log).items()}
        for name in ("iql", "best")
    }
    for log, listed in by_log.items():
        scores = [case["score"] for case in listed]
        ranks = [
            spearmanr([value(case) for case in listed], scores)[0]  # type: ignore[index]
            for value in (lambda c: c["promise"], ORDERS["nearest states"], ORDERS["nearest actions"])
        ]
        print(f"{log}: ranks of promise, states and actions {np.round(ranks, 2)}")
    for name, by in {**taken, **methods}.items():
        print(f"{name}: {np.mean(list(by.values())):.1f} ({', '.join(f'{value:.1f}' for value in by.values())})")
    for name, by in {"promise": taken["promise"], "iql": methods["iql"]}.items():
        apart = np.array([taken["near"][log] - by[log] for log in logs])
        low, high = np.quantile(np.random.default_rng(0).choice(apart, (draws, len(apart))).mean(1), [0.025, 0.975])
        print(f"near less {name}: {apart.mean():.1f} [{low:.1f}, {high:.1f}]")


def beyond() -> None:
    """By how much of their range committed judgements of policies go beyond what the rewards allow."""
    notes = Path(__file__).parents[1]
    facts: list[dict[str, Any]] = []
    for path in notes.glob("judge/*/judged/*.jsonl"):
        if path.parts[-3] != "leaving":
            for values in (record for record in map(json.loads, path.open()) if record["variant"] == "values"):
                facts += [values["facts"] | said["diagnostics"] for said in values["policies"].values()]
    for path in notes.glob("third-form/choice/*/judged-full.json"):
        facts += [row["diagnostics"] for row in json.loads(path.read_text()) if "largest" in row["diagnostics"]]
    over = [
        max(each["largest"] - each["highest_possible"], each["lowest_possible"] - each["least"])
        / (each["highest_possible"] - each["lowest_possible"])
        for each in facts
    ]
    print(f"{len(over)} judgements, {sum(each > BEYOND for each in over)} by more than {BEYOND}; most {max(over):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "table", "choose", "beyond"])
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--logs", nargs="+", default=[])
    parser.add_argument("--effort", default="quick")
    options = parser.parse_args()
    if options.stage == "beyond":
        beyond()
    if options.stage == "choose":
        choose(options.out, options.logs)
    if options.stage in ("beyond", "choose"):
        return
    for log in options.logs:
        if options.stage == "table":
            table(options.out, log)
        else:
            measure(options.out, log, options.effort)


if __name__ == "__main__":
    main()
