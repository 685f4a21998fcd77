"""`sbac learn` on unusual logs, as it prints: `python lab-notes/learn/cases.py NAME ... --out runs/cases [--short]`.

--short: networks and steps of seconds in place of the plan's, where only the lines are to be seen.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from signals import small_table

import sbac
from sbac import cli


def pushed(rows: int, length: int, width: int = 2, seed: int = 0) -> dict[str, Any]:
    """A point is pushed about, and is best at 0; the other columns say nothing."""
    rng = np.random.default_rng(seed)
    x, a = np.zeros((rows, width)), np.zeros((rows, 1))
    x[:, 1:] = rng.normal(size=(rows, width - 1))
    for i in range(rows):
        if i % length == 0:
            x[i, 0] = rng.normal()
        a[i] = np.clip(-0.3 * x[i, 0] + 0.4 * rng.normal(), -1, 1)
        if (i + 1) % length and i + 1 < rows:
            x[i + 1, 0] = 0.9 * x[i, 0] + 0.5 * a[i, 0] + 0.05 * rng.normal()
    ends = np.arange(1, rows + 1) % length == 0
    return {
        "observations": x,
        "actions": a,
        "rewards": -(x[:, 0] ** 2),
        "terminals": np.zeros(rows, bool),
        "timeouts": ends,
    }


def cases() -> dict[str, dict[str, Any]]:
    usual = pushed(3_000, 30)
    falls = np.abs(usual["observations"][:, 0]) > 1.2
    return {
        "200-rows": pushed(200, 20),
        "300-columns": pushed(3_000, 30, 300),
        "one-long-episode": pushed(3_000, 10_000),
        "one-reward": usual | {"rewards": np.ones(3_000)},
        "one-reward-with-ends": usual
        | {"rewards": np.ones(3_000), "terminals": falls, "timeouts": usual["timeouts"] & ~falls},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(cases()))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args()
    if asked.short:
        small_table()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names:
        sbac.Dataset(**cases()[name]).save(asked.out / f"{name}.npz")
        print(f"--- {name}", flush=True)
        cli.main(["learn", str(asked.out / f"{name}.npz"), "--minutes", "1000", "--out", str(asked.out / name)])


if __name__ == "__main__":
    main()
