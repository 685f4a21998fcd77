"""Records of cells that were never trained, with returns that are known: for tests only."""

import zlib
from typing import Any

import numpy as np

from sbac.environments.tasks import find_task
from sbac.lab.cells import CellRecord, parse_cell
from sbac.results.measured import FORMAT
from sbac.text import significant

STEPS = [1000, 1000]
WATCHED_AT = list(range(100, 1001, 50))


def record(*arguments: Any, **options: Any) -> CellRecord:
    """The cell that `record_json` writes down."""
    return parsed(record_json(*arguments, **options))


def parsed(cell: dict[str, Any]) -> CellRecord:
    return parse_cell(cell, "synthetic.json")


def record_json(
    data: str = "hopper-medium-made",
    algorithm: str = "sbac",
    means: dict[float, float] | None = None,
    *,
    final: bool = True,
    seeds: int = 3,
    noise: float = 1.0,
    preset: str = "paper",
    key: str = "000000000000",
    scored: bool = True,
    date: str = "2026-01-01",
    **changes: Any,
) -> dict[str, Any]:
    """A cell's file; its policies reach score `means[alpha]`, rising linearly along training, with some noise."""
    rng = np.random.default_rng(zlib.crc32(f"{data} {algorithm} {seeds}".encode()))
    task = find_task(data) if scored else None
    means = means or {0.5: 40.0, 2.0: 60.0}

    def returns(score: float, episodes: int) -> list[float | None]:
        scores = score + noise * rng.standard_normal(episodes)
        if task is None:
            return significant(scores, 6)
        return significant(task.reference_min + scores / 100 * (task.reference_max - task.reference_min), 6)

    points = [(alpha, mean, seed) for alpha, mean in means.items() for seed in range(seeds)]
    curves: list[dict[str, Any]] = [
        {"phase": "estimate", "seed": seed, "setting": {}, "steps": [1000], "returns": [returns(30.0, 10)]}
        for seed in range(seeds)
    ]
    curves += [
        {
            "phase": "improve",
            "seed": seed,
            "setting": {"alpha": alpha},
            "steps": WATCHED_AT,
            "returns": [returns(mean * step / 1000, 10) for step in WATCHED_AT],
        }
        for alpha, mean, seed in points
    ]
    finals = [
        {"seed": seed, "setting": {"alpha": alpha}, "returns": returns(mean, 100), "lengths": [1000] * 100}
        for alpha, mean, seed in points
    ]
    logged = np.linspace(0, 1000, 11)[1:].astype(int).tolist()
    return {
        "key": key,
        "format": FORMAT,
        "algorithm": algorithm,
        "preset": preset,
        "data": {
            "name": data,
            "kind": "made" if data.endswith("-made") else "D4RL",
            "task": data if scored else None,
            "rows": 1000,
            "episodes": 10,
            "hash": "d" * 64,
            "identity": "d" * 64,
            "returns": {"mean": 5.0, "edges": list(range(26)), "counts": list(range(25))},
        },
        "environment": data if scored else "Pendulum-v1",
        "grid": ["alpha"],
        "runs": [{"seed": seed, "alpha": alpha} for alpha, _, seed in points],
        "config": {"steps": STEPS, "batch_size": 256, "hidden": [256, 256]},
        "watched": {"episodes": 10, "seed": 10_000},
        "versions": {"sbac": "0.1.0", "mujoco": "3.4.0"},
        "curves": curves,
        "metrics": [
            {"phase": "estimate", "setting": {}, "steps": logged, "values": {"critic_loss": [1.0] * 10}},
            *(
                {
                    "phase": "improve",
                    "setting": {"alpha": alpha},
                    "steps": logged,
                    "values": {"ratio_mean": [1.0] * 10, "ratio_ess": [0.5] * 10, "objective": [None, *[2.0] * 9]},
                }
                for alpha in means
            ),
        ],
        "actions": {
            "low": [-1.0, -1.0],
            "high": [1.0, 1.0],
            "data": [[10] * 25] * 2,
            "policies": [{"setting": {"alpha": alpha}, "counts": [[10] * 25] * 2} for alpha in means],
        },
        "length": [1000],
        "settings": {"alpha": list(means)},
        "protocol": {"episodes": 10, "seed": 10_000, "every": 50, "final_episodes": 100, "final_seed": 1_000_000},
        "code": {"version": "0.1.0", "hash": "c" * 16},
        "machine": "CPU, x86_64, 2 cores",
        "date": date,
        "seconds": 12.5,
        "final": finals if final else [],
    } | changes
