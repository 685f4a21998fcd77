"""Speed of making data beside that of unwrapped Gymnasium, on all cores, in one run.

python benchmarks/making.py [--steps 100000] [--workers 2]

Both sides use the same number of processes. Gymnasium steps one bare environment in each with uniform actions drawn
beforehand, and starts episodes anew where they end; making is `make_dataset`, from asking to the dataset in memory:
policies, rejected overshoot, files between processes and all. Starting the processes is left out on both sides.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from sbac.data.collecting import make
from sbac.data.ladder import read_ladders, shipped
from sbac.data.making import Part
from sbac.data.shards import Pool, Shard

QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, one side after the other")
    parser.add_argument("--bodies", nargs="+", default=["halfcheetah", "hopper", "walker2d"])
    parser.add_argument("--tiers", nargs="+", default=["random", "medium", "expert"])
    parser.add_argument("--gymnasium", metavar="ID", help=argparse.SUPPRESS)  # the child's side
    options = parser.parse_args()
    if options.gymnasium:
        step_gymnasium(options.gymnasium, options.steps)
        return
    print(f"{options.workers} processes, {options.steps} steps, median of {options.rounds}, steps/s")
    print(f"{'':24} {'Gymnasium':>10} {'making':>10} {'ratio':>6}")
    for body in options.bodies:
        env_id = read_ladders(shipped(body))[0].environment
        for tier in options.tiers:
            rates = [
                (gymnasium_rate(env_id, options.steps, options.workers), making_rate(body, tier, options))
                for _ in range(options.rounds)
            ]
            theirs, ours = np.median(rates, axis=0)
            ratio = np.median([mine / other for other, mine in rates])
            print(f"{body + '-' + tier:24} {theirs:10,.0f} {ours:10,.0f} {ratio:6.2f}", flush=True)


def gymnasium_rate(env_id: str, steps: int, workers: int) -> float:
    """Steps a second of `workers` processes together."""
    each = steps // workers
    command = [sys.executable, __file__, "--gymnasium", env_id, "--steps", str(each)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **QUIET})
        for _ in range(workers)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # ready
    began = time.perf_counter()
    for child in children:
        child.communicate("go\n")
    return each * workers / (time.perf_counter() - began)


def step_gymnasium(env_id: str, steps: int) -> None:
    env = make(env_id)
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, env.action_space.shape[0])).astype(np.float32)
    print("ready", flush=True)
    sys.stdin.readline()
    age = 0
    for action in actions:
        _, _, terminated, _, _ = env.step(action)
        age += 1
        if terminated or age == 1000:
            env.reset()
            age = 0


def making_rate(body: str, tier: str, options: argparse.Namespace) -> float:
    """Rows a second that arrive, whatever overshoots."""
    import tempfile

    part = Part(body, tier, options.steps, 0)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Pool(options.workers, Path(scratch), lambda steps: None) as pool,
    ):
        warm = [pool.submit(Shard(str(shipped(body)), [(None, 20)], False, 1, (i,))) for i in range(options.workers)]
        for answer in warm:
            answer.result()
        began = time.perf_counter()
        answers = [pool.submit(shard) for shard in part.shards()]
        rows = len(part.join([answer.result()[0] for answer in answers])["rewards"])
        return rows / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
