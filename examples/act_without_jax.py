"""A trained policy in a program that has numpy and safetensors and nothing else of sbac's requirements.

    sbac train hopper-demo --algorithm bc --out runs/bc
    python examples/act_without_jax.py runs/bc/policies/seed=0.safetensors

There, sbac is installed without its requirements: pip install --no-deps sbac && pip install numpy safetensors
"""

import sys
import time

import numpy as np

from sbac import Policy


def main() -> None:
    policy = Policy.load(sys.argv[1])
    observation = policy.arrays["scale/observation_mean"]
    print(f"action at the mean observation: {np.array2string(policy(observation), precision=3)}")

    begin = time.perf_counter()
    for _ in range(1_000):
        policy(observation)
    print(f"{1e3 * (time.perf_counter() - begin):.0f} microseconds an action")
    print(f"JAX was imported: {'jax' in sys.modules}")


if __name__ == "__main__":
    main()
