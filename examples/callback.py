"""A callback: what a training reports while it goes on. This one prints a line for every tenth of the way.

    python examples/callback.py

`sbac.callbacks` has two that write for TensorBoard and for Weights & Biases; `sbac train --log tensorboard` uses them.
"""

import argparse
from collections.abc import Sequence

import sbac
from sbac.callbacks import Row
from sbac.runs import Run


class Printer(sbac.Callback):
    def __init__(self) -> None:
        self.calls = 0

    def on_metrics(self, rows: Sequence[Row]) -> None:
        self.calls += 1
        if self.calls % 5 == 0:
            first = rows[0]
            print(f"{first['phase']}, step {first['step']}: loss {[row['loss'] for row in rows]}")

    def on_evaluation(self, rows: Sequence[Row]) -> None:
        for row in rows:
            print(f"seed {row['seed']} after {row['step']} steps: returns {row['returns']}")

    def on_end(self, run: Run) -> None:
        print(f"finished: {len(run.policies)} policies")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="hopper-demo", help="what to learn from (default: hopper-demo)")
    parser.add_argument("--steps", type=int, default=5_000, help="gradient steps")
    parser.add_argument("--no-evaluate", action="store_true", help="without playing")
    arguments = parser.parse_args()
    sbac.train(
        arguments.data,
        "bc",
        seeds=2,
        steps=arguments.steps,
        evaluate=not arguments.no_evaluate,
        episodes=2,
        callbacks=[Printer()],
        progress=False,
    )


if __name__ == "__main__":
    main()
