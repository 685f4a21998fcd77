"""`sbac learn` on the embedded Hopper log, and then the truth: what was promised beside what happens.

The same as `sbac learn hopper-demo --minutes 5 --out runs/demo`. Only the truth needs a simulator.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import sbac
from sbac.learning.plan import least_minutes
from sbac.learning.probe import device_kind, slowness

LOG = "hopper-demo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, help="default: 5, or what this machine needs at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=50, help="that are played in the end")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    arguments = parser.parse_args()

    data = sbac.load(LOG)
    minutes = arguments.minutes
    if minutes is None and not arguments.out.exists():
        minutes = max(5, least_minutes(len(data), device_kind(), slowness(*sizes(data))))
    answer = sbac.learn(data, minutes=minutes, seed=arguments.seed, out=arguments.out)
    print(answer.text)

    print(f"\nThe truth, from {arguments.episodes} episodes in the simulator:")
    clone = sbac.Policy.load(next((arguments.out / "runs").glob("*/clone.safetensors")))
    played = {"the clone": clone} | ({} if answer.policy is None else {"the policy": answer.policy})
    returns = {"the log": data.returns.tolist()}
    for name, policy in played.items():
        returns[name] = sbac.evaluate(policy, LOG, episodes=arguments.episodes).returns
    for name, earned in returns.items():
        error = np.std(earned, ddof=1) / np.sqrt(len(earned))
        print(f"  {name:<10} {np.mean(earned):7,.0f} an episode, standard error {error:.0f}")
    if answer.gain is not None:
        gained = np.mean(returns["the policy"]) - data.returns.mean()
        between = f"90 %: {answer.gain_low:+,.0f} to {answer.gain_high:+,.0f}"
        print(f"Promised: {answer.gain:+,.0f} over the log ({between}). Happened: {gained:+,.0f}.")
    picture = arguments.out / "promise.png"
    draw(returns, answer, picture)
    print(f"picture in {picture}")


def sizes(data: sbac.Dataset) -> tuple[int, int]:
    return data.observations.shape[1], data.actions.shape[1]


def draw(returns: dict[str, Sequence[float]], answer: sbac.Answer, path: Path) -> None:
    """What episodes earn: a row for each, their mean as a line, and the promise as a bar below the policy's."""
    figure: Any = Figure(figsize=(8, 0.6 + 0.7 * len(returns)), layout="constrained")
    ax = figure.subplots()
    colours = {"the log": "0.6", "the clone": "tab:orange", "the policy": "tab:green"}
    for height, (name, earned) in enumerate(returns.items()):
        jitter = height + 0.25 * np.random.default_rng(0).uniform(-1, 1, len(earned))
        ax.plot(earned, jitter, ".", color=colours[name], alpha=0.4, markeredgewidth=0)
        ax.plot([np.mean(earned)] * 2, [height - 0.35, height + 0.35], color=colours[name], linewidth=3)
    mean = float(np.mean(returns["the log"]))
    if answer.gain_low is not None and answer.gain_high is not None:
        ax.plot([mean + answer.gain_low, mean + answer.gain_high], [height + 0.42] * 2, color="tab:blue", linewidth=4)
        ax.annotate("promised, 90 %", (mean + answer.gain_high, height + 0.42), color="tab:blue", va="center",
                    xytext=(5, 0), textcoords="offset points", fontsize="small")  # fmt: skip
    ax.set_yticks(range(len(returns)), list(returns))
    ax.set_xlabel("return of an episode; the thick lines are means")
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
