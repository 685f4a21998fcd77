"""SBAC on the embedded Hopper log: a table, a learning curve, and the policies in runs/demo.

The same in Python as `sbac train hopper-demo --seeds 5 --alpha ...`, with the clone beside it. The alpha that counts
is the preset's; the second one shows what a larger weight on the behaviour does.
"""

import argparse
from pathlib import Path

import numpy as np

import sbac
from sbac.report.curves import learning_curves
from sbac.report.summary import last_evaluations, measured, render, summarise

HEADLINE, LARGER = 2.0, 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", default="runs/demo")
    arguments = parser.parse_args()

    data = sbac.load("hopper-demo")
    print(f"{data.name}: {len(data):,} transitions in {len(data.episodes)} episodes, mean score {data.score:.1f}")
    run = sbac.train(
        data,
        "sbac",
        seeds=arguments.seeds,
        alpha=[HEADLINE, LARGER],
        episodes=20,
        evaluate_every=2_500,
        out=arguments.out,
        overwrite=True,
    )

    clones = [{**row, "algorithm": "bc (phase estimate)"} for row in last_evaluations(run.evaluations, "estimate")]
    policies = last_evaluations(run.evaluations, "improve")
    scores = sbac.data.normalised_score(data.task, data.returns)
    logged = {"name": "the data", "seeds": 0, "episodes": len(scores), "mean": scores.mean(), "std": None}
    logged |= {"worst": scores.min(), "unit": "score"}
    print(render([logged, *summarise([*clones, *policies])]))

    of_clone = {row["seed"]: np.mean(measured(row)) for row in clones}
    gains = [np.mean(measured(row)) - of_clone[row["seed"]] for row in policies if row["alpha"] == HEADLINE]
    error = np.std(gains, ddof=1) / np.sqrt(len(gains))
    print(f"SBAC (alpha {HEADLINE:g}) minus BC, paired by seed: {np.mean(gains):+.1f}, standard error {error:.1f}")

    picture = Path(arguments.out) / "learning-curve.png"
    learning_curves({"": run}, picture, reference={"the data": float(scores.mean())})
    print(f"policies in {arguments.out}/policies, learning curve in {picture}")


if __name__ == "__main__":
    main()
