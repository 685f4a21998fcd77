"""Three small worlds, each with a log by a noisy and mediocre controller: what its clone scores, and what SBAC does.

    python lab-notes/small-worlds/small_worlds.py --seeds 0 1 2 3 4 --out runs/small-worlds

Preset `quick` as it is, 20 episodes a policy. The logs lie in OUT as npz files and the runs beside them; a run that is
there is continued. The table goes to the standard output, in Markdown.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np

import sbac
from sbac.report.summary import outcome
from sbac.results.describe import describe
from sbac.results.outcome import verdict
from sbac.results.series import series_of
from sbac.results.statistics import mean_interval

Controller = Callable[[np.ndarray, np.random.Generator], float]


@dataclass(frozen=True)
class World:
    environment: str
    episodes: int
    act: Controller


def pendulum(state: np.ndarray, rng: np.random.Generator) -> float:
    """Pushes the way it turns, and balances near the top; a torque of 2 is the most, and the noise has 1.2."""
    cosine, sine, speed = state
    wanted = -8 * np.arctan2(sine, cosine) - 1.5 * speed if cosine > 0.8 else 1.2 * np.sign(speed)
    return wanted + rng.normal(0, 1.2)


def inverted_pendulum(state: np.ndarray, rng: np.random.Generator) -> float:
    """Pushes the cart under the pole, with no thought of where the cart goes, and with much noise."""
    _, angle, _, turning = state
    return 6 * angle + 0.5 * turning + rng.normal(0, 1.5)


def mountain_car(state: np.ndarray, rng: np.random.Generator) -> float:
    """Pushes the way the car moves every other step, and anyhow in the others."""
    return np.sign(state[1]) if rng.random() < 0.5 else rng.uniform(-1, 1)


WORLDS = (
    World("InvertedPendulum-v5", 200, inverted_pendulum),
    World("Pendulum-v1", 40, pendulum),
    World("MountainCarContinuous-v0", 60, mountain_car),
)


def record(world: World) -> sbac.Dataset:
    """The log: every episode has a seed of its own, and the controller's noise one for all."""
    rng = np.random.default_rng(7)
    env = gymnasium.make(world.environment)
    assert isinstance(env.action_space, gymnasium.spaces.Box)
    low, high = env.action_space.low, env.action_space.high
    rows: list[list] = [[] for _ in range(6)]
    for episode in range(world.episodes):
        state, _ = env.reset(seed=episode)
        over = False
        while not over:
            action = np.clip([world.act(state, rng)], low, high).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(action)
            for column, value in zip(rows, (state, action, reward, terminated, truncated, after), strict=True):
                column.append(value)
            state, over = after, terminated or truncated
    observations, actions, rewards, terminals, timeouts, next_observations = map(np.array, rows)
    return sbac.Dataset(
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminals=terminals,
        timeouts=timeouts,
        next_observations=next_observations,
        action_low=low,
        action_high=high,
        environment=world.environment,
        name=world.environment,
    )


def interval(values: np.ndarray) -> str:
    found = mean_interval(values)
    return f"{found.value:.1f} ({found.low:.1f} to {found.high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", default="runs/small-worlds")
    parser.add_argument("--only", nargs="+", choices=[world.environment for world in WORLDS])
    arguments = parser.parse_args()
    lines = ["| world | rows | the log | its best tenth | its clone | SBAC | verdict |", "|" + "---|" * 7]
    for world in WORLDS:
        if arguments.only and world.environment not in arguments.only:
            continue
        log = Path(arguments.out) / f"{world.environment}.npz"
        log.parent.mkdir(parents=True, exist_ok=True)
        record(world).save(log)
        data = sbac.load(log, environment=world.environment)
        run = sbac.train(
            data, "sbac", seeds=arguments.seeds, episodes=20, out=log.with_suffix(""), resume=True, evaluate_every=5_000
        )
        print(f"{world.environment}\n{outcome(run)}\n", flush=True)
        (series,) = series_of(describe(run))
        assert series.clone_scores is not None and series.data_mean is not None and series.best_tenth is not None
        cells = [world.environment, f"{len(data):,}", f"{series.data_mean:.1f}", f"{series.best_tenth:.1f}"]
        cells += [interval(series.clone_scores), interval(series.scores), verdict([series]).split(": ", 1)[1]]
        lines.append(f"| {' | '.join(cells)} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
