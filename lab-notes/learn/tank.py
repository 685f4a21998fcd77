"""A tank that is heated, whose best controller is known, and two logs of it as a plant would write them.

    python lab-notes/learn/tank.py operator.csv optimal.csv
    python lab-notes/learn/tank.py --play runs/operator/policy.safetensors

operator.csv: an operator who reacts to the temperature alone, half as much as would be best. optimal.csv: the best
linear controller, with a hair of noise: there is nothing to gain, so that "keep what you have" is the right answer.
The system is linear, its noise Gaussian and its cost quadratic: the best gain follows from Riccati's equation.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are

import sbac

SHIFT, SHIFTS = 60, 200
TARGET, MIDDLE = 60.0, 50.0
"""Degrees, and the percent of the heater that hold them."""
A, B = np.array([[0.95, 0.3], [0.0, 0.95]]), np.array([[0.08], [0.0]])
"""Of the temperature's distance from its target and of the inflow's, and what a percent of the heater adds."""
NOISE = np.array([0.1, 0.5])
COST, EFFORT = np.diag([0.1, 0.0]), np.array([[5e-4]])
Floats = NDArray[np.float64]
Controller = Callable[[Floats, np.random.Generator], Floats]
HEADER = "Schicht;Temp. [degC];Zulauf [K];Heizung [%];Guete"
COLUMNS = {
    "observations": ["Temp. [degC]", "Zulauf [K]"],
    "actions": "Heizung [%]",
    "rewards": "Guete",
    "episode": "Schicht",
}


def best_gain() -> Floats:
    cost = solve_discrete_are(A, B, COST, EFFORT)
    return np.linalg.solve(EFFORT + B.T @ cost @ B, B.T @ cost @ A)[0]


def operator(states: Floats, rng: np.random.Generator) -> Floats:
    return MIDDLE - 0.5 * best_gain()[0] * states[:, 0] + rng.normal(0, 12, len(states))


def optimal(states: Floats, rng: np.random.Generator) -> Floats:
    return MIDDLE - states @ best_gain() + rng.normal(0, 0.5, len(states))


def play(controller: Controller, shifts: int, seed: int) -> list[Floats]:
    """States, actions and rewards, each with an axis for shifts and one for steps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, [3.0, 1.5], (shifts, 2))
    kept: list[tuple[Floats, Floats, Floats]] = []
    for _ in range(SHIFT):
        heat = np.clip(controller(x, rng), 0, 100)
        reward = -np.einsum("ni,ij,nj->n", x, COST, x) - EFFORT[0, 0] * (heat - MIDDLE) ** 2
        kept.append((x, heat, reward))
        x = x @ A.T + (heat - MIDDLE)[:, None] @ B.T + NOISE * rng.normal(size=x.shape)
    return [np.stack(parts, axis=1) for parts in zip(*kept, strict=True)]


def returns(policy: Any, shifts: int = 1_000, seed: int = 50_000) -> list[float]:
    """What shifts under a policy earn."""

    def act(states: Floats, _: np.random.Generator) -> Floats:
        return policy(states + [TARGET, 0.0])[:, 0]

    return play(act, shifts, seed)[2].sum(1).tolist()


def write(controller: Controller, path: Path) -> None:
    states, actions, rewards = play(controller, SHIFTS, 0)
    lines = [
        f"{shift + 1};{states[shift, k, 0] + TARGET:.4f};{states[shift, k, 1]:.4f};{actions[shift, k]:.3f};"
        f"{rewards[shift, k]:.5f}"
        for shift in range(SHIFTS)
        for k in range(SHIFT)
    ]
    path.write_text("\n".join([HEADER, *lines]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", type=Path, help="where the operator's log goes, and the best controller's")
    parser.add_argument("--play", type=Path, nargs="*", default=[], help="policies to be played")
    asked = parser.parse_args()
    for path, controller in zip(asked.logs, (operator, optimal), strict=False):
        write(controller, path)
    for controller in (operator, optimal):
        print(f"{controller.__name__}: {play(controller, 1_000, 50_000)[2].sum(1).mean():.1f} a shift")
    for path in asked.play:
        print(f"{path}: {np.mean(returns(sbac.Policy.load(path))):.1f} a shift")


if __name__ == "__main__":
    main()
