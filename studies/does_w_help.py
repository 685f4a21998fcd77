"""Does the visitation ratio help? SBAC with w against w = 1, at every alpha, paired by seed.

    python studies/does_w_help.py train hopper-medium-made --out results/does-w-help
    python studies/does_w_help.py report results/does-w-help --plot docs/does-w-help.png
    python studies/does_w_help.py train hopper-medium-made --preset quick --seeds 10 --alphas 0.5 4 --steps 20000 \\
        --variants "w, KL" "w on states, KL" "w = 1, KL" --out results/does-w-help-kl

w acts as alpha / w(s), so a comparison at one alpha says little: a smaller alpha must not pass for a better method.
Phase estimate is trained once and shared by all; the policies differ in w alone.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sbac.runs import EvaluationRow

ALPHAS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2.0, 5.0]
SETTINGS: dict[str, dict[str, Any]] = {
    "corrected": {
        "hidden": [256, 256],
        "ratio_hidden": [256, 256],
        "critics": 2,
        "behaviour_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "policy_learning_rate": 1e-4,
        "ratio_learning_rate": 3e-4,
        "ratio_every": 2,
        "start_from_clone": True,
    }
}
# Algorithm, what is changed, and the variant it is held against.
VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "w": ("sbac", {"temper": False}, "w = 1"),
    "w tempered": ("sbac", {"temper": True}, "w = 1"),
    "w on states": ("sbac", {"temper": False, "weighting": "state"}, "w = 1"),
    "w on states, entropy": ("sbac", {"temper": False, "weighting": "state", "entropy": 0.5}, "w = 1"),
    "w (s,a), entropy": ("sbac", {"ratio_estimator": "state-action-classifier", "entropy": 0.5}, "w = 1, entropy"),
    "w, KL": ("sbac", {"entropy": 1.0}, "w = 1, KL"),
    "w on states, KL": ("sbac", {"entropy": 1.0, "weighting": "state"}, "w = 1, KL"),
    "w = 1": ("sbac-no-w", {}, "w = 1"),
    "w = 1, entropy": ("sbac-no-w", {"entropy": 0.5}, "w = 1, entropy"),
    "w = 1, KL": ("sbac-no-w", {"entropy": 1.0}, "w = 1, KL"),
}


def train(arguments: argparse.Namespace) -> None:
    import sbac
    from sbac.making.making import make_dataset
    from sbac.results.describe import describe
    from sbac.results.series import series_of
    from sbac.runs import metric_json

    out = Path(arguments.out)
    scratch = Path(arguments.scratch)
    out.mkdir(parents=True, exist_ok=True)
    support = {} if arguments.support is None else {"support": arguments.support}
    for task in arguments.tasks:
        began = time.monotonic()
        data = make_dataset(task, size=arguments.size) if arguments.make else sbac.load(task)
        print(f"{task}: {len(data):,} rows, score {data.score:.1f}, {time.monotonic() - began:.0f} s", flush=True)
        first: Path | None = None
        for variant in arguments.variants:
            algorithm, changes, _ = VARIANTS[variant]
            began = time.monotonic()
            folder = scratch / f"{task}-{variant.replace(' ', '-')}"
            run = sbac.train(
                data,
                algorithm,
                preset=arguments.preset,
                seeds=arguments.seeds,
                alpha=arguments.alphas,
                steps=[arguments.steps if first is None else 0, arguments.steps],
                out=folder,
                overwrite=True,
                episodes=arguments.episodes,
                evaluate_every=arguments.steps // 2,
                checkpoint_seconds=1e9,
                warm_start=first,
                warm_phases=["estimate"],
                **(SETTINGS.get(arguments.preset, {}) | support | changes),
            )
            first = first or folder
            rows = [_compact(row, variant) for row in run.evaluation_rows]
            rows += [
                {"variant": variant, "metrics": {k: v for k, v in metric_json(row).items() if v is not None}}
                for row in run.metric_rows
                if row.place.phase == "improve" and row.place.step == arguments.steps
            ]
            with open(out / f"{task}.jsonl", "a") as f:
                f.writelines(json.dumps(row) + "\n" for row in rows)
            taken = time.monotonic() - began
            last = [s.mean for s in series_of(describe(run))]
            print(
                f"  {variant}: {len(run.policies)} policies, {taken:.0f} s, mean score {np.mean(last):.1f}", flush=True
            )


def _compact(row: "EvaluationRow", variant: str) -> dict[str, Any]:
    place, episodes = row.place, row.episodes
    about = {"algorithm": place.algorithm, "seed": place.seed, "alpha": place.setting.get("alpha")}
    about |= {"phase": place.phase, "step": place.step, "versions": episodes.versions}
    return about | {"variant": variant, "scores": [round(s, 2) for s in episodes.scores or []]}


def table(folder: Path) -> dict[str, dict[str, dict[float, dict[int, list[float]]]]]:
    """task -> variant -> alpha -> seed -> scores of the last evaluation; alpha None is the clone."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "metrics" in row:
                continue
            cell = found.setdefault(path.stem, {}).setdefault(row["variant"], {}).setdefault(row["alpha"], {})
            cell[row["seed"]] = row["scores"]  # rows come in the order of steps, so the last one stays
    return found


def paired(a: dict[int, list[float]], b: dict[int, list[float]], reduce: Any) -> tuple[float, float]:
    """Mean and standard error over seeds of the difference of a statistic of the episodes."""
    gaps = np.array([reduce(a[seed]) - reduce(b[seed]) for seed in sorted(a.keys() & b.keys())])
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


def report(arguments: argparse.Namespace) -> None:
    from scipy.stats import t as student

    for task, variants in table(Path(arguments.folder)).items():
        shown = next(iter(variants.values()))
        alphas = sorted(a for a in shown if a is not None)
        seeds = len(shown[alphas[0]])
        width = student.ppf(0.975, seeds - 1)
        print(f"\n{task} ({seeds} seeds): mean score; difference to w = 1 at the same alpha with its 95 % interval")
        for name, cells in variants.items():
            against = variants[VARIANTS[name][2]]
            for alpha in alphas:
                score = np.mean([np.mean(v) for v in cells[alpha].values()])
                gap, error = paired(cells[alpha], against[alpha], np.mean)
                worst, worst_error = paired(cells[alpha], against[alpha], np.min)
                print(
                    f"{name:18s} alpha {alpha:<5g} score {score:6.1f}   difference {gap:+6.1f} +- {width * error:5.1f}"
                    f"   worst episode {worst:+6.1f} +- {width * worst_error:5.1f}"
                )
            best = max(alphas, key=lambda a: np.mean([np.mean(v) for v in cells[a].values()]))
            other = max(alphas, key=lambda a: np.mean([np.mean(v) for v in against[a].values()]))
            gap, error = paired(cells[best], against[other], np.mean)
            print(f"{name:18s} best alpha {best:g} against {other:g}: {gap:+.1f} +- {width * error:.1f}")
    if arguments.plot:
        plot(Path(arguments.folder), Path(arguments.plot))


def plot(folder: Path, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks = table(folder)
    figure, axes = plt.subplots(1, len(tasks), figsize=(5 * len(tasks), 4), layout="constrained", squeeze=False)
    for axis, (task, variants) in zip(axes[0], tasks.items(), strict=True):
        for name, cells in variants.items():
            alphas = sorted(a for a in cells if a is not None)
            means = np.array([[np.mean(v) for v in cells[a].values()] for a in alphas])
            error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
            axis.errorbar(alphas, means.mean(axis=1), yerr=error, marker="o", capsize=3, label=name)
        axis.set_xscale("log")
        axis.set_title(task)
        axis.set_xlabel("alpha")
        axis.set_ylabel("normalised score (mean, standard error over seeds)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    trainer = commands.add_parser("train")
    trainer.add_argument("tasks", nargs="+")
    trainer.add_argument("--out", default="results/does-w-help")
    trainer.add_argument("--scratch", default="runs/does-w-help")
    trainer.add_argument("--make", action="store_true", help="make the data in memory instead of loading it")
    trainer.add_argument("--size", type=int)
    trainer.add_argument("--preset", default="corrected")
    trainer.add_argument("--seeds", type=int, default=5)
    trainer.add_argument("--alphas", type=float, nargs="+", default=ALPHAS)
    trainer.add_argument("--steps", type=int, default=200_000)
    trainer.add_argument("--episodes", type=int, default=20)
    trainer.add_argument("--variants", nargs="+", default=["w", "w = 1"], choices=list(VARIANTS))
    trainer.add_argument("--support", choices=["action", "pre-tanh"], help="where log mu is measured")
    trainer.set_defaults(run=train)
    reporter = commands.add_parser("report")
    reporter.add_argument("folder")
    reporter.add_argument("--plot")
    reporter.set_defaults(run=report)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
