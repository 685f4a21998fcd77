"""Speed of making data beside that of unwrapped Gymnasium, on all cores, in one run.

python benchmarks/making.py [--workers 2] [--size 1000000]

Both sides use the same number of processes. Gymnasium steps one bare environment in each with uniform actions drawn
beforehand, and starts episodes anew where they end. Making plays the first shards of a dataset of the given size, one
in each process: policies, rejected overshoot, files between processes and all. Starting the processes is left out on
both sides.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sbac.environments.lanes import make
from sbac.making.ladder import read_ladders, shipped
from sbac.making.making import TierData
from sbac.making.shards import Shard, ShardPool

QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, one side after the other")
    parser.add_argument("--bodies", nargs="+", default=["halfcheetah", "hopper", "walker2d"])
    parser.add_argument("--tiers", nargs="+", default=["random", "medium", "expert"])
    parser.add_argument("--gymnasium", nargs=2, help=argparse.SUPPRESS)  # a child: the environment, the steps
    options = parser.parse_args()
    if options.gymnasium:
        step_gymnasium(options.gymnasium[0], int(options.gymnasium[1]))
        return
    print(f"{options.workers} processes, shards of {options.size:,} transitions, median of {options.rounds}")
    print(f"{'steps/s':20} {'Gymnasium':>10} {'making':>10} {'ratio':>6}")
    for body in options.bodies:
        env_id = read_ladders(shipped(body))[0].environment
        for tier in options.tiers:
            shards = TierData(body, tier, options.size, 0).shards()[: options.workers]
            rates = np.array([(gymnasium_rate(env_id, shards), making_rate(shards)) for _ in range(options.rounds)])
            theirs, ours = np.median(rates, axis=0)
            ratio = np.median(rates[:, 1] / rates[:, 0])
            print(f"{body + '-' + tier:20} {theirs:10,.0f} {ours:10,.0f} {ratio:6.2f}", flush=True)


def gymnasium_rate(env_id: str, shards: Sequence[Shard]) -> float:
    """Steps a second of a process for each shard together."""
    total = sum(shard.steps for shard in shards)
    command = [sys.executable, __file__, "--gymnasium", env_id, str(shards[0].steps)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **QUIET})
        for _ in shards
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # ready
    began = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
    return total / (time.perf_counter() - began)


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


def making_rate(shards: Sequence[Shard]) -> float:
    """Rows a second that are asked for; what overshoots is not counted."""
    with ShardPool(len(shards)) as pool:
        for answer in [pool.submit(replace(shard, stages=[(None, 5)], whole=False)) for shard in shards]:
            answer.result()  # the processes are up
        began = time.perf_counter()
        for answer in [pool.submit(shard) for shard in shards]:
            answer.result()
        return sum(shard.steps for shard in shards) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
