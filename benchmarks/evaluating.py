"""Speed of evaluation on one core: lanes beside wrapped Gymnasium with the same policy, and bare stepping without one.

OMP_NUM_THREADS=1 python benchmarks/evaluating.py runs/demo/policies/alpha=2_seed=0.safetensors [--rounds 3]

Both sides play the same 20 episodes of the policy's task, one after the other, and must return the same numbers.
"""

import argparse
import time

import gymnasium
import numpy as np

from sbac.environments.lanes import make
from sbac.environments.opening import environment_of, open_environment
from sbac.evaluation.rollout import Evaluator, rollout
from sbac.policy import Policy

EPISODES, BARE_STEPS = 20, 20_000


def bare_rate(env_id: str) -> float:
    """Steps a second with uniform actions drawn beforehand."""
    environment, horizon = make(env_id), gymnasium.spec(env_id).max_episode_steps
    environment.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (BARE_STEPS, environment.action_space.shape[0]))
    age, began = 0, time.perf_counter()
    for action in actions:
        age += 1
        if environment.step(action)[2] or age == horizon:
            environment.reset()
            age = 0
    return BARE_STEPS / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("--rounds", type=int, default=3)
    told = parser.parse_args()
    policy = Policy.load(told.policy)
    task = policy.config["task"]
    env_id = environment_of(task)[0]
    evaluator, environments = Evaluator(task), [open_environment(env_id) for _ in range(EPISODES)]
    evaluator(policy, EPISODES, 0)  # its environments are made
    rates = {"lanes": list[float](), "wrapped": list[float](), "bare, no policy": list[float]()}
    for seed in range(0, 100 * told.rounds, 100):
        began = time.perf_counter()
        found = evaluator(policy, EPISODES, seed)
        rates["lanes"].append(sum(found.lengths) / (time.perf_counter() - began))
        began = time.perf_counter()
        returns, lengths, _ = rollout(environments, policy, range(seed, seed + EPISODES))
        rates["wrapped"].append(lengths.sum() / (time.perf_counter() - began))
        assert found.returns == returns.tolist()
        rates["bare, no policy"].append(bare_rate(env_id))
    for name, values in rates.items():
        print(f"{env_id} {name:16} {np.median(values):8,.0f} steps/s")


if __name__ == "__main__":
    main()
