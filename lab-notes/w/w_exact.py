"""Does w help where everything is known? SBAC's objective (8) with the exact w against w = 1, at every alpha.

    cd lab-notes/w; python w_exact.py --out w-exact.json --plot w-exact.png     # a few minutes, one core

Q, w and the return come from linear solves: no sampling, no networks. A score of 0 is mu's return and 1 the optimal
one. alpha is in units of the standard deviation of A^mu in the data, so that one alpha means the same in every problem.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from exact_worlds import (
    advantage_scale,
    controls,
    garnets,
    garnets_sharing_mu,
    in_groups,
    linear_class,
    noisy_q,
    random_groups,
    score,
    true_q,
)
from scipy.stats import t as student

from truth.improvement import Found, Maximiser, Worlds, aggregated_critic, each_state, improve

ALPHAS = np.geomspace(1e-3, 1e2, 16)
TIE = 1e-3
ROUNDS = 5


# --- The comparisons --------------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """One place of w, or none: the scores, and whether pi and w fit together, each (alpha, MDP)."""

    scores: np.ndarray
    settled: np.ndarray


Comparison = Callable[[Worlds, np.ndarray], dict[str, Found]]
"""(worlds, alpha (k, m)) -> what each side finds."""


class Setting(NamedTuple):
    problems: Callable[[], Iterator[tuple[str, Worlds]]]
    compare: Comparison


def one_step(
    *weightings: str,
    entropy: float = 0.0,
    maximiser: Callable[[Worlds], Maximiser] = lambda worlds: each_state,
    q_of: Callable[[Worlds], np.ndarray] = true_q,
) -> Comparison:
    """Objective (8) with and without w, and with w in other places."""

    def compare(worlds: Worlds, alpha: np.ndarray) -> dict[str, Found]:
        q, maximise = q_of(worlds), maximiser(worlds)
        return {
            name: improve(worlds, lambda w: q, alpha, weighting=name, entropy=entropy, maximise=maximise)
            for name in ("none", "q", *weightings)
        }

    return compare


def rounds(maximiser: Callable[[Worlds], Maximiser]) -> Comparison:
    """mu gives way to the last pi and Q to its Q; w stays relative to the data. With KL: a cross-entropy to a
    deterministic policy would end it after one round."""

    def run(worlds: Worlds, alpha: np.ndarray, weighting: str) -> Found:
        now, maximise = worlds, maximiser(worlds)
        for _ in range(ROUNDS):
            q = worlds.values(now.mu)[1]
            found = improve(
                now, lambda w, q=q: q, alpha, weighting=weighting, entropy=1.0, maximise=maximise, iterations=40
            )
            now = replace(now, mu=found.policy)
        return found

    return lambda worlds, alpha: {name: run(worlds, alpha, name) for name in ("none", "q")}


def critic_weights(worlds: Worlds, alpha: np.ndarray) -> dict[str, Found]:
    """One number of Q per group and action, fitted with w on the critic's loss, or on the policy's Q, or on both."""
    groups = random_groups(worlds)
    sides = {"none": ("none", False), "q": ("q", False), "critic": ("none", True), "critic and q": ("q", True)}
    return {
        name: improve(
            worlds,
            aggregated_critic(worlds, groups, weighted=on_critic),
            alpha,
            weighting=weighting,
            critic_weighted=on_critic,
        )
        for name, (weighting, on_critic) in sides.items()
    }


ELSEWHERE = ("penalty", "state")
SETTINGS = {
    "MDPs": Setting(garnets, one_step()),
    "MDPs, KL": Setting(garnets, one_step(entropy=1.0)),
    "MDPs, noisy Q": Setting(garnets, one_step(q_of=noisy_q)),
    "MDPs, KL, noisy Q": Setting(garnets, one_step(entropy=1.0, q_of=noisy_q)),
    "MDPs, shared policy": Setting(garnets, one_step(*ELSEWHERE, maximiser=in_groups)),
    "MDPs, shared policy and mu": Setting(garnets_sharing_mu, one_step(*ELSEWHERE, maximiser=in_groups)),
    "MDPs, shared policy and mu, KL": Setting(garnets_sharing_mu, one_step(entropy=1.0, maximiser=in_groups)),
    "MDPs, shared policy and mu, noisy Q": Setting(
        garnets_sharing_mu, one_step(*ELSEWHERE, maximiser=in_groups, q_of=noisy_q)
    ),
    "MDPs, 5 rounds, KL": Setting(garnets, rounds(lambda worlds: each_state)),
    "MDPs, 5 rounds, shared policy and mu, KL": Setting(garnets_sharing_mu, rounds(in_groups)),
    "MDPs, shared critic": Setting(garnets, critic_weights),
    "linear-quadratic": Setting(lambda: controls(False), one_step()),
    "linear-quadratic, linear law": Setting(lambda: controls(False), one_step(*ELSEWHERE, maximiser=linear_class)),
    "uneven control": Setting(lambda: controls(True), one_step()),
    "uneven control, linear law": Setting(lambda: controls(True), one_step(*ELSEWHERE, maximiser=linear_class)),
}


def measure(setting: Setting) -> tuple[dict[str, Side], list[str]]:
    """Each side's results, and the condition of each MDP."""
    parts: dict[str, list[Side]] = {}
    labels: list[str] = []
    for label, worlds in setting.problems():
        labels += [label] * worlds.shape[0]
        for name, found in setting.compare(worlds, ALPHAS[:, None] * advantage_scale(worlds)).items():
            parts.setdefault(name, []).append(Side(score(worlds, found.policy), found.settled))
    return {
        name: Side(*(np.concatenate(x, axis=1) for x in zip(*sides, strict=True))) for name, sides in parts.items()
    }, labels


# --- What is said about them ------------------------------------------------------------------------------------------


def interval(gaps: np.ndarray) -> tuple[float, float]:
    """Mean over MDPs and half the width of its 95 % interval."""
    return float(gaps.mean()), float(student.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def paired(with_w: np.ndarray, without: np.ndarray) -> dict[str, float]:
    gaps = with_w - without
    mean, half = interval(gaps)
    return {
        "score": float(with_w.mean()),
        "score_w1": float(without.mean()),
        "difference": mean,
        "half_width": half,
        "wins": float((gaps > TIE).mean()),
        "losses": float((gaps < -TIE).mean()),
    }


def summary(side: Side, other: Side, labels: list[str]) -> dict[str, Any]:
    ours, base = side.scores, other.scores
    one_ours, one_base = ours.mean(1).argmax(), base.mean(1).argmax()
    label, keep = np.array(labels), side.settled[one_ours]
    return {
        "mdps": len(labels),
        "settled": [float(x) for x in side.settled.mean(1)],
        "each_alpha": [paired(ours[k], base[k]) for k in range(len(ALPHAS))],
        "best_per_mdp": paired(ours.max(0), base.max(0)),
        "one_alpha": {
            "alpha": float(ALPHAS[one_ours]),
            "alpha_w1": float(ALPHAS[one_base]),
            **paired(ours[one_ours], base[one_base]),
            "settled": paired(ours[one_ours][keep], base[one_base][keep]) | {"share": float(keep.mean())},
        },
        "one_alpha_by_condition": {
            name: paired(ours[one_ours][label == name], base[one_base][label == name]) for name in dict.fromkeys(labels)
        },
    }


def shown(cell: dict[str, float]) -> str:
    return f"{cell['difference']:+.3f} ± {cell['half_width']:.3f}"


Results = dict[str, dict[str, Any]]
"""Problems -> place of w -> summary."""


def best_table(results: Results) -> str:
    lines = [
        "| problems | w on | scores, w = 1 / w | one alpha for all | its alphas | wins / losses | settled "
        "| best alpha per problem | wins / losses |",
        "|---" * 9 + "|",
    ]
    for name, place, found in ((name, place, x) for name, places in results.items() for place, x in places.items()):
        one, best = found["one_alpha"], found["best_per_mdp"]
        lines.append(
            f"| {name} | {place} | {one['score_w1']:.3f} / {one['score']:.3f} | {shown(one)} "
            f"| {one['alpha_w1']:.2g} / {one['alpha']:.2g} | {one['wins']:.0%} / {one['losses']:.0%} "
            f"| {one['settled']['share']:.0%} | {shown(best)} | {best['wins']:.0%} / {best['losses']:.0%} |"
        )
    return "\n".join(lines)


def alpha_table(results: Results) -> str:
    columns = {f"{name} ({place})": x for name, places in results.items() for place, x in places.items()}
    lines = ["| alpha | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for k, alpha in enumerate(ALPHAS):
        lines.append(f"| {alpha:.2g} | " + " | ".join(shown(x["each_alpha"][k]) for x in columns.values()) + " |")
    return "\n".join(lines)


COLOURS = {
    "q": "tab:blue",
    "state": "tab:green",
    "penalty": "tab:orange",
    "critic": "tab:red",
    "critic and q": "tab:purple",
}


def plot(results: Results, path: Path) -> None:
    """The difference at every alpha, and where w = 1 is at its best."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = -(-len(results) // 4)
    figure, axes = plt.subplots(rows, 4, figsize=(15, 2.9 * rows), layout="constrained", sharex=True, sharey=True)
    lines = {}
    for axis, (name, places) in zip(axes.flat, results.items(), strict=False):
        for place, found in places.items():
            gap, half = (np.array([x[key] for x in found["each_alpha"]]) for key in ("difference", "half_width"))
            lines[place] = axis.plot(ALPHAS, gap, color=COLOURS[place])[0]
            axis.fill_between(ALPHAS, gap - half, gap + half, color=COLOURS[place], alpha=0.15, linewidth=0)
            best = axis.axvline(found["one_alpha"]["alpha_w1"], color="tab:gray", linestyle=":")
        axis.axhline(0, color="black", linewidth=0.5)
        axis.set(xscale="log", ylim=(-0.2, 0.2))
        axis.set_title(name, fontsize="small")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    names = [f"w on {place}" for place in lines] + ["best alpha of w = 1"]
    figure.legend([*lines.values(), best], names, loc="outside upper center", ncols=len(names), frameon=False)
    figure.supxlabel("alpha, in standard deviations of A^mu")
    figure.supylabel("score with w less score with w = 1, 95 % interval")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--out", type=Path, help="a JSON file for every number")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    results: Results = {}
    for name in arguments.settings:
        began = time.monotonic()
        sides, labels = measure(SETTINGS[name])
        other = sides.pop("none")
        results[name] = {place: summary(side, other, labels) for place, side in sides.items()}
        print(f"{name}: {len(labels)} problems, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(best_table(results), alpha_table(results), sep="\n\n")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({"alphas": ALPHAS.tolist(), "results": results}, indent=1) + "\n")
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
