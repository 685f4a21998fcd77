"""Your own environment: record a log in it, learn from the log, play the policy in it.

python examples/own_environment.py
"""

import argparse

import gymnasium
import numpy as np

import sbac


class Reach(gymnasium.Env):
    """A point on a line that is pushed towards 0; an episode takes 20 steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.state, self.left = self.np_random.uniform(-1, 1, 2).astype(np.float32), 20
        return self.state.copy(), {}

    def step(self, action: np.ndarray):
        place, speed = self.state
        speed = 0.9 * speed + 0.2 * float(action[0])
        self.state = np.array([place + 0.2 * speed, speed], np.float32)
        self.left -= 1
        return self.state.copy(), -abs(float(self.state[0])), False, self.left == 0, {}


def record(episodes: int) -> sbac.Dataset:
    """A log of a push in the right direction, with much noise."""
    env, rng = Reach(), np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        state, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            action = np.clip(-state[:1] + rng.normal(0, 0.5, 1), -1, 1)
            following, reward, terminal, ended, _ = env.step(action)
            rows.append((state, action, reward, terminal, ended))
            state = following
    observations, actions, rewards, terminals, timeouts = map(np.array, zip(*rows, strict=True))
    return sbac.Dataset(observations, actions, rewards, terminals, timeouts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="sbac", help="which method (default: sbac)")
    parser.add_argument("--steps", type=int, default=5_000, help="gradient steps of a phase")
    arguments = parser.parse_args()

    data = record(episodes=100)
    run = sbac.train(data, arguments.algorithm, steps=arguments.steps, environment=Reach, progress=False)
    result = sbac.evaluate(run.policies[0], Reach, episodes=50)
    print(f"mean return of the log {data.returns.mean():.2f}, of the policy {result.mean:.2f}")


if __name__ == "__main__":
    main()
