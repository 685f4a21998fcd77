"""By what should policies be ranked? What other orders than the promise would take, on committed judgements.

python lab-notes/judge/orders.py lab-notes/judge/small:all lab-notes/judge/quick:model lab-notes/judge/full:all

Of each folder and variant of the model: the mean score of what an order takes among trainings of one length.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bed import among_methods, cases

Case = dict[str, Any]


def less_optimism(times: float) -> Callable[[Case], Any]:
    """What is expected, less so many times what may be optimism."""

    def order(case: Case) -> Any:
        record = case["record"]
        return case["told"], record.expected - times * record.diagnostics["episode_optimism"]

    return order


def finite(number: float) -> float:
    return number if math.isfinite(number) else -math.inf


ORDERS: dict[str, Callable[[Case], Any]] = {
    **{f"{times:g} times the optimism": less_optimism(times) for times in (0, 1, 2, 4, 8)},
    "lower bound of the episode": lambda c: (c["told"], finite(c["episode"].low)),
    "middle of the episode": lambda c: (c["told"], finite(c["episode"].mean)),
    "lower bound of the gain": lambda c: (c["told"], c["gain"].low),
    "gain": lambda c: (c["told"], c["gain"].mean),
    "fitted Q evaluation": lambda c: c["record"].diagnostics["fitted_gain"],
    "nearest to the log": lambda c: -c["record"].diagnostics["distance"],
    **{
        f"none that departs by {most:g}": lambda c, most=most: (
            c["told"], c["record"].diagnostics["distance"] < most, c["record"].expected,
        )
        for most in (0.4, 0.6, 0.8)
    },
}  # fmt: skip


def main() -> None:
    beds = [dict(zip(("out", "variant"), word.split(":"), strict=True)) for word in sys.argv[1:]]
    told = [
        {
            path.stem: listed
            for path in sorted((Path(bed["out"]) / "judged").glob("*.jsonl"))
            if (listed := list(cases(Path(bed["out"]), path.stem, bed["variant"])))
        }
        for bed in beds
    ]
    for name, order in ORDERS.items():
        rows = [[row for of_log in among_methods(by_log, order).values() for row in of_log] for by_log in told]
        words = [
            f"{np.mean([r['taken'] for r in each]):.1f} of {np.mean([r['best'] for r in each]):.1f}" for each in rows
        ]
        print(f"{name}: {', '.join(words)}")


if __name__ == "__main__":
    main()
