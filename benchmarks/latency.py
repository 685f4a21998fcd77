"""How long a policy takes to act: numpy and ONNX Runtime, one observation and batches, on one core.

    python benchmarks/latency.py [--out FILE.json]

Networks of 256 x 256, 17 observations and 6 actions, as in D4RL's Walker2d. Prints a Markdown table of medians in
microseconds. Each figure is the median over single calls, after calls that warm up.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is loaded

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.exporting.policies import make_policy  # noqa: E402

from sbac.exporting.export_policy import program  # noqa: E402
from sbac.policy import FORMULAS  # noqa: E402

BATCHES = (1, 32, 256)
SECONDS, LEAST = 0.5, 5
"""How long each figure is measured, and how often at least."""


def median_microseconds(act: Callable[[np.ndarray], np.ndarray], observations: np.ndarray) -> float:
    for _ in range(5):
        act(observations)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < LEAST:
        begin = time.perf_counter()
        act(observations)
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--kinds", nargs="+", default=list(FORMULAS), metavar="KIND", help="which (default: all)")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{platform.machine()}, one core, microseconds\n")
    print("| kind | runs in | " + " | ".join(f"{n:,}" for n in BATCHES) + " |")
    print("| --- | --- |" + " ---: |" * len(BATCHES))
    figures: list[dict[str, object]] = []
    rng = np.random.default_rng(0)
    for kind in arguments.kinds:
        policy = make_policy(kind, observations=17, actions=6, hidden=(256, 256))
        _, run = program(policy, "onnx")
        assert run is not None, "needs onnxruntime"
        for where, act in (("numpy", policy), ("onnxruntime", run)):
            found: dict[int, float] = {}
            for n in BATCHES:
                found[n] = median_microseconds(act, rng.normal(size=(n, 17)).astype(np.float32))
            print(f"| {kind} | {where} | " + " | ".join(f"{found[n]:,.0f}" for n in BATCHES) + " |", flush=True)
            figures.append({"kind": kind, "runs_in": where, "microseconds": found})
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"machine": platform.machine(), "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
