"""Your own log as arrays: a heater that was run by hand, and a policy that is better than the hand.

    python examples/own_arrays.py

The log has what people have: what was seen, what was done, what it was worth, and where an episode ends.
"""

import argparse

import numpy as np

import sbac


def record(episodes: int, hours: int = 24, seed: int = 0) -> dict[str, np.ndarray]:
    """A room whose heater someone turns up when it is cold, late and not always. Comfort is 20 degrees."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("observations", "actions", "rewards", "timeouts")}
    for _ in range(episodes):
        inside, outside = rng.uniform(10, 25), rng.uniform(-10, 15)
        for hour in range(hours):
            power = np.clip(0.15 * (19 - inside) + rng.normal(0, 0.4), 0, 1)
            rows["observations"].append(np.array([inside, outside]))
            rows["actions"].append(np.array([power]))
            inside += 0.3 * (outside - inside) + 8 * power
            rows["rewards"].append(np.array(-abs(inside - 20)))
            rows["timeouts"].append(np.array(hour == hours - 1))
    return {name: np.stack(values) for name, values in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="sbac", help="which method (default: sbac)")
    parser.add_argument("--steps", type=int, default=5_000, help="gradient steps of a phase")
    arguments = parser.parse_args()

    log = record(episodes=200)
    data = sbac.Dataset(
        observations=log["observations"],
        actions=log["actions"],
        rewards=log["rewards"],
        terminals=np.zeros(len(log["rewards"]), bool),  # nothing breaks; an episode ends with the day
        timeouts=log["timeouts"],
        action_low=[0.0],
        action_high=[1.0],
    )
    print(f"{len(data):,} rows in {len(data.episodes)} episodes, mean return {data.returns.mean():.1f}")

    run = sbac.train(data, arguments.algorithm, steps=arguments.steps, evaluate=False, progress=False)
    policy = run.policies[0]
    for inside in (12.0, 20.0, 25.0):
        print(f"{inside:.0f} degrees inside, 0 outside: heater at {policy([inside, 0.0])[0]:.0%}")


if __name__ == "__main__":
    main()
