"""How often does the interval of an estimate hold the truth, where the truth is known?

    export PYTHONPATH=tests
    python lab-notes/trust/intervals.py --repeats 200 --processes 16
    python lab-notes/trust/intervals.py --summary

Two kinds of worlds, tabular and linear-Gaussian, and policies at three distances from the log: mild (near what the log
does), strong (what it hardly ever does), and learned: the greedy improvement computed from the same log, which is what
a policy of ours is. A repeat draws a new log. Rows that are in the file already are not computed again.
"""

import argparse
import dataclasses
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from truth.logged import PLACES, Acts, Columns, Linear, Table

CASES = [(world, shift) for world in ("table", "linear") for shift in ("mild", "strong", "learned")]
WORLDS = 10
"""Different worlds of each kind; repeat k is a log of world k modulo this."""
EPISODES = 200
STEPS = (2_000, 4_000)


def table_case(number: int, shift: str, columns: Columns) -> tuple[Table, Acts, float]:
    world = Table.random(number, sharpness=1.0 if shift != "strong" else 2.5)
    if shift == "learned":
        choice = learned_choice(world, columns)
    else:
        choice = world.usual(changed=1) if shift == "mild" else world.rare()
    return world, world.acts(choice), world.value(np.eye(3)[choice])


def learned_choice(world: Table, columns: Columns) -> np.ndarray:
    """Greedy in the Q^mu of the model that counts give: optimistic where the log was lucky."""
    s, following = columns["observations"].argmax(1), columns["next_observations"].argmax(1)
    a = np.abs(columns["actions"] - PLACES).argmin(1)
    states = len(world.mu)
    counts = np.zeros((states, 3, states))
    np.add.at(counts, (s, a, following), 1)
    sums = np.zeros((states, 3))
    np.add.at(sums, (s, a), columns["rewards"])
    tried = counts.sum(2)
    moves, rewards = counts / np.maximum(tried, 1)[..., None], sums / np.maximum(tried, 1)
    mu = tried / np.maximum(tried.sum(1, keepdims=True), 1)
    flow = np.einsum("sa,sat->st", mu, moves)
    v = np.linalg.solve(np.eye(states) - world.discount * flow, (mu * rewards).sum(1))
    return np.where(tried > 0, rewards + world.discount * moves @ v, -np.inf).argmax(1)


def linear_case(number: int, shift: str, columns: Columns) -> tuple[Linear, Acts, float]:
    world = Linear.random(number)
    if shift == "learned":
        gain = learned_gain(world, columns)
    else:
        gain = world.better(0.3) if shift == "mild" else world.beyond()
    return world, world.acts(gain), world.value(gain)


def learned_gain(world: Linear, columns: Columns) -> np.ndarray:
    """The optimal gain of the dynamics that least squares find in the log, half the way."""
    inputs = np.concatenate([columns["observations"], columns["actions"]], axis=1)
    found = np.linalg.lstsq(inputs, columns["next_observations"], rcond=None)[0].T
    obs = columns["observations"].shape[1]
    fitted = dataclasses.replace(world, dynamics=found[:, :obs], control=found[:, obs:])
    return world.gain + 0.5 * (fitted.better(1.0) - world.gain)


def repeat(kind: str, shift: str, number: int) -> dict[str, Any]:
    """One log, its estimate and the truth."""
    import sbac
    from sbac.trust.estimates import fqe
    from sbac.trust.evidence import Effort

    started = time.perf_counter()
    made: Table | Linear = Table.random(number % WORLDS) if kind == "table" else Linear.random(number % WORLDS)
    if kind == "table" and shift == "strong":
        made = Table.random(number % WORLDS, sharpness=2.5)
    columns = made.log(EPISODES, 1_000 + number)
    if kind == "table":
        table, acts, truth = table_case(number % WORLDS, shift, columns)
        own, discount = table.value(table.mu), table.discount
    else:
        linear, acts, truth = linear_case(number % WORLDS, shift, columns)
        own, discount = linear.value(linear.gain, linear.deviation), linear.discount
    effort = Effort(6, 2, (32, 32), 64, STEPS, 2e-3, 0.1)
    found = fqe(sbac.Dataset(**columns), acts, discount, seed=number, effort=effort)
    return {
        "world": kind,
        "shift": shift,
        "repeat": number,
        "truth": truth,
        "log": own,
        "value": found.value,
        "gain": found.gain,
        "low": found.low if found.has_interval else None,
        "high": found.high if found.has_interval else None,
        "gain_low": found.gain_low if found.has_interval else None,
        "gain_high": found.gain_high if found.has_interval else None,
        "warnings": found.warnings,
        "diagnostics": found.diagnostics,
        "seconds": time.perf_counter() - started,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Thresholds act here and not in the rows: the intervals are made from the replicates and the diagnostics."""
    from sbac.trust.estimates import conclude
    from sbac.trust.evidence import Facts, summary

    lines = [
        "| case | repeats | without warning | truth inside | error of J, its mean | outside and no warning |",
        "|---|---|---|---|---|---|",
    ]
    for kind, shift in CASES:
        found = [row for row in rows if (row["world"], row["shift"]) == (kind, shift)]
        if not found:
            continue
        inside: list[bool] = []
        for row in found:
            facts = Facts({name: number for name, number in row["diagnostics"].items() if number is not None})
            facts.update(summary("fitted_log", np.full(2, row["log"])))
            if "gains" in row:  # committed rows have them beside the diagnostics
                facts.update(summary("fitted_gain", np.array(row["gains"])))
            estimate = conclude(facts)
            if not estimate.warnings:
                inside.append(estimate.gain_low <= row["truth"] - row["log"] <= estimate.gain_high)
        errors = np.array([row["value"] / row["truth"] - 1 for row in found])
        covered = f"{100 * np.mean(inside):.0f} %" if inside else "none"
        silent = (len(inside) - sum(inside)) / len(found)
        lines.append(
            f"| {kind}, {shift} | {len(found)} | {100 * len(inside) / len(found):.0f} % | {covered} | "
            f"{100 * np.abs(errors).mean():.1f} %, {100 * errors.mean():+.1f} % | {100 * silent:.1f} % |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("lab-notes/trust/coverage.jsonl"))
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cases", nargs="+", default=[f"{w}-{s}" for w, s in CASES], help="such as table-mild")
    parser.add_argument("--summary", action="store_true", help="only summarise the file")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(row["world"], row["shift"], row["repeat"]) for row in rows}
    named = [(world, shift) for world, shift in CASES if f"{world}-{shift}" in args.cases]
    wanted = [(world, shift, number) for number in range(args.repeats) for world, shift in named]
    left = [] if args.summary else [entry for entry in wanted if entry not in done]
    if left:
        # One thread for each process: the networks are small. The CPU serves, and a GPU stays free.
        os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool, args.out.open("a") as file:
            for answer in as_completed([pool.submit(repeat, *entry) for entry in left]):
                rows.append(answer.result())
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    print(summary(rows))


if __name__ == "__main__":
    main()
