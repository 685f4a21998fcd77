"""What evaluation costs the training it runs beside: the same launch with and without it, in turns.

    python benchmarks/training_beside_evaluation.py hopper-medium-made --steps 200000

Five seeds of TD3+BC, evaluated as `sbac bench` does (ten episodes, five times sparsely and ten times at the end).
Timed is the training alone, from the end of its first stretch to the end of its last.
"""

import argparse
import time
from typing import Any

import jax

import sbac
from sbac.lab.protocol import Protocol
from sbac.training.engine import Program


def timed(data: sbac.Dataset, algorithm: str, steps: int, seeds: int, evaluate: bool) -> float:
    """Steps per second of the last phase."""
    ends: list[tuple[int, float]] = []
    advance = Program.advance

    def noted(self: Program, phase: int, inputs: Any, state: Any, start: int, stop: int, block: int = 1) -> Any:
        out = advance(self, phase, inputs, state, start, stop, block)
        jax.block_until_ready(out[1])
        ends.append((stop, time.perf_counter()))
        return out

    Program.advance = noted
    try:
        sbac.train(
            data,
            algorithm,
            preset="paper",
            seeds=seeds,
            steps=steps,
            evaluate=evaluate,
            evaluate_at=Protocol().schedule(steps),
            progress=False,
        )
    finally:
        Program.advance = advance
    (first, began), (last, ended) = ends[0], ends[-1]
    return (last - first) / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--algorithm", default="td3-bc")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=2)
    told = parser.parse_args()
    data = sbac.load(told.data)
    for turn in range(told.turns):
        off, on = (timed(data, told.algorithm, told.steps, told.seeds, evaluate) for evaluate in (False, True))
        print(f"turn {turn}: {off:,.0f} steps/s without, {on:,.0f} with evaluation: {on / off:.3f}", flush=True)


if __name__ == "__main__":
    main()
