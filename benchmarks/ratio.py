"""How well the estimators recover a known visitation ratio: linear-Gaussian systems, 4 to 12 state dimensions.

    python benchmarks/ratio.py                        # every estimator on every system, 5 seeds: minutes on a GPU
    python benchmarks/ratio.py --systems "8/3 strong" --estimators classifier lstd
    python benchmarks/ratio.py --from results.jsonl   # the table of results that were kept with --out

Each seed has data of its own (250 trajectories of 200 steps) and a network of its own; the seeds of a cell train
together as one program. An entry is correlation of log w / skill +- its spread over seeds (raw mean of w).
skill = 1 - E|w - w*| / E|1 - w*| on fresh states: 1 is perfect, 0 no better than w = 1.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the problems with known answers live with the tests
from sbac.ratio import RatioBatch
from sbac.ratio.visitation import fit, log_w_of_rows, make_config
from truth.problems import LinearGaussian, correlation, effective_size, skill

DISCOUNT = 0.99
TRAJECTORIES = 250
FLOOR = 0.5  # of pi's standard deviation, relative to mu's, unless a variant says otherwise
NO_CLIP = 50.0


class System(NamedTuple):
    """State and action dimensions, the true effective sample size, and pi's distance from mu."""

    obs: int
    act: int
    ess: float
    shift: float
    std_ratio: float = 1.0


SYSTEMS = {
    "4/2 mild": System(4, 2, 0.6, 0.65),
    "4/2 strong": System(4, 2, 0.25, 1.8),
    "12/6 mild": System(12, 6, 0.6, 0.4),
    "8/3 strong": System(8, 3, 0.25, 0.9),
    "8/3 x0.3": System(8, 3, 0.25, 0.7, 0.3),
    "8/3 x0.1": System(8, 3, 0.25, 0.7, 0.1),
    "12/6 x0.3": System(12, 6, 0.25, 0.7, 0.3),
    "12/6 x0.1": System(12, 6, 0.25, 0.7, 0.1),
}


class Variant(NamedTuple):
    form: str = "exact"
    estimator: str = "default"
    floor: float = FLOOR
    options: dict[str, Any] = {}


VARIANTS = {
    "classifier": Variant(),
    "state-action-classifier": Variant(estimator="state-action-classifier"),
    "lstd": Variant(estimator="lstd"),
    "mmd": Variant(estimator="mmd"),
    "mmd, laplacian": Variant(estimator="mmd", options={"kernel": "laplacian"}),
    "printed": Variant(form="printed"),
    "classifier, restart at the data": Variant(form="theorem"),
    "classifier, log w within 2": Variant(options={"log_w_clip": 2.0}),
    "classifier, batch's own mean": Variant(options={"mean_rate": 1.0}),
    "classifier, falling rate": Variant(options={"decay": True}),
    "classifier, not normalised": Variant(options={"normalise": False}),
    "classifier, beta clipped, no floor": Variant(floor=0.0),
    "classifier, raw beta": Variant(floor=0.0, options={"log_beta_clip": NO_CLIP}),
    "state-action-classifier, no floor": Variant(estimator="state-action-classifier", floor=0.0),
    "mmd, all pairs, not normalised": Variant(estimator="mmd", options={"pairs": "all", "normalise": False}),
}


class Problem(NamedTuple):
    """The data of all seeds, stacked, and states to judge on with their true log w."""

    data: dict[float, RatioBatch]  # by floor
    states: jax.Array
    truth: np.ndarray
    beta_ess: float


def make_problem(system: System, seeds: int, floors: set[float]) -> Problem:
    world = LinearGaussian.with_ess(
        0, system.obs, system.act, ess=system.ess, shift=system.shift, std_ratio=system.std_ratio, discount=DISCOUNT
    )
    samples = [world.sample(TRAJECTORIES, seed) for seed in range(seeds)]
    centre, scale = samples[0]["states"].mean(0), samples[0]["states"].std(0)
    states = world.data_states(4_000, seed=1_000)

    def standardised(x: np.ndarray) -> jax.Array:
        return jnp.asarray((x - centre) / scale, jnp.float32)

    def batch(sample: dict[str, np.ndarray], seed: int, floor: float) -> RatioBatch:
        return RatioBatch(
            states=standardised(sample["states"]),
            log_ratio=jnp.asarray(world.log_ratio(sample["states"], sample["actions"], floor), jnp.float32),
            next_states=standardised(sample["next_states"]),
            terminals=jnp.asarray(sample["terminals"], jnp.float32),
            initial_states=standardised(sample["initial_states"]),
            actions=jnp.asarray(sample["actions"], jnp.float32),
            next_policy_actions=jnp.asarray(world.policy_actions(sample["next_states"], seed, floor), jnp.float32),
            initial_policy_actions=jnp.asarray(
                world.policy_actions(sample["initial_states"], seed, floor), jnp.float32
            ),
        )

    data = {
        floor: jax.tree.map(lambda *x: jnp.stack(x), *(batch(x, i, floor) for i, x in enumerate(samples)))
        for floor in floors
    }
    raw = world.log_ratio(samples[0]["states"], samples[0]["actions"])
    return Problem(data, standardised(states), world.log_w(states, DISCOUNT), effective_size(raw))


def measure(problem: Problem, variant: Variant, seeds: int, steps: int) -> dict[str, Any]:
    """Trains one network per seed, all in one program, and compares each with the truth."""
    config = make_config(DISCOUNT, variant.form, variant.estimator, steps, 256, dict(variant.options))
    data = problem.data[variant.floor]
    began = time.monotonic()
    models = jax.vmap(fit, in_axes=(None, 0, 0))(config, data, jax.random.split(jax.random.key(0), seeds))
    found = jax.vmap(lambda model: log_w_of_rows(config, model, problem.states))(models)
    logs = np.asarray(found, np.float64)
    return {
        "correlation": [correlation(x, problem.truth) for x in logs],
        "skill": [skill(x, problem.truth) for x in logs],
        "mean": [float(np.exp(x).mean()) for x in logs],
        "ess": [effective_size(x) for x in logs],
        "seconds": time.monotonic() - began,
    }


def run(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    floors = {VARIANTS[name].floor for name in arguments.estimators}
    for name in arguments.systems:
        problem = make_problem(SYSTEMS[name], arguments.seeds, floors)
        truth = {"true_ess": effective_size(problem.truth), "beta_ess": problem.beta_ess}
        for estimator in arguments.estimators:
            found = measure(problem, VARIANTS[estimator], arguments.seeds, arguments.steps)
            yield {"system": name, "estimator": estimator, **truth, **found}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a column per system, a row per estimator, and how far the default is from the best."""
    systems = list(dict.fromkeys(row["system"] for row in rows))
    cells = {(row["estimator"], row["system"]): row for row in rows}
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    heads = {row["system"]: f"ESS of w {row['true_ess']:.2f}, of beta {row['beta_ess']:.2g}" for row in rows}
    lines = [
        "| estimator | " + " | ".join(systems) + " |",
        "|---" * (len(systems) + 1) + "|",
        "| *truth* | " + " | ".join(heads[name] for name in systems) + " |",
    ]
    for estimator in estimators:
        entries = [entry(cells.get((estimator, system))) for system in systems]
        lines.append(f"| {estimator} | " + " | ".join(entries) + " |")
    if "classifier" in estimators:
        lines.append("| *default below the best by* | " + " | ".join(shortfall(rows, name) for name in systems) + " |")
    return "\n".join(lines)


def entry(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    corr, mark, mean = (np.mean(row[name]) for name in ("correlation", "skill", "mean"))
    return f"{corr:.2f} / {mark:.2f} ± {np.std(row['skill']):.2f} ({mean:.2f})"


def shortfall(rows: list[dict[str, Any]], system: str) -> str:
    skills = {row["estimator"]: float(np.mean(row["skill"])) for row in rows if row["system"] == system}
    if "classifier" not in skills:
        return ""
    best = max(skills, key=lambda name: skills[name])
    return f"{skills[best] - skills['classifier']:.2f} ({best})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--estimators", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--out", type=Path, help="a file to which every cell is added as it is done")
    parser.add_argument("--from", type=Path, dest="source", help="print the table of such a file")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.source.read_text().splitlines()] if arguments.source else []
    for row in () if arguments.source else run(arguments):
        rows.append(row)
        print(f"{row['system']:12s} {row['estimator']:36s} {entry(row)}  {row['seconds']:.0f} s", flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
