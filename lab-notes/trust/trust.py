"""How good are the estimates and the choice on real runs? Estimates, diagnostics and true returns, row by row.

    sbac bench --tasks ... --algorithms sbac@tuned --train-only --out lab-notes/table    # trainings, on a GPU
    python lab-notes/trust/trust.py lab-notes/table                                      # estimates, on a GPU
    sbac bench --evaluate-only --out lab-notes/table                                     # the truth, on any machine
    python lab-notes/trust/trust.py lab-notes/table --summary

A row has a policy's estimate with all replicates and diagnostics, and the seconds that the estimates of its run took.
The truth is in the cells: the final episodes, which nothing was chosen on. Runs whose rows are in the file already are
skipped. Thresholds act in the summary, not in the rows: they can be fixed on some seeds (--seeds 100 101) and tried on
others.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from sbac.data import normalised_score
from sbac.lab.cells import CellRecord, folder_of, read_cells

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


# --- Rows -------------------------------------------------------------------------------------------------------------


def measure(results: Path, cell: CellRecord, effort_name: str | None) -> list[dict[str, Any]]:
    """All policies of a cell's run, as `sbac select` judges them."""
    import jax

    from sbac.runs import Run
    from sbac.trust.choosing import judged_candidates
    from sbac.trust.contenders import contenders, default_effort, discount_of, log_of, preset_setting
    from sbac.trust.evidence import Question, find_effort
    from sbac.trust.log import read_log

    run = Run.load(folder_of(results, cell))
    started = time.perf_counter()
    log = read_log(log_of([run], None), discount_of(run.record))
    effort = find_effort(effort_name or default_effort(run.record))
    judged = contenders([run])
    finite = [each.policy for each in judged if each.is_finite]
    candidates = judged_candidates(Question(log, finite, effort), judged)
    seconds = time.perf_counter() - started
    jax.clear_caches()  # the next log has other sizes
    preset = preset_setting(run.record)
    rows: list[dict[str, Any]] = []
    for candidate in candidates:
        if candidate.value is None:
            continue
        rows.append(
            {
                "key": cell.key,
                "data": log.data.name,
                "algorithm": run.record.algorithm,
                "label": candidate.label,
                "seed": candidate.seed,
                "setting": candidate.setting,
                "preset": {name: preset.get(name) for name in candidate.setting},
                "diagnostics": candidate.diagnostics,
                "log": float(log.returns.mean()),
                "best_logged": float(log.returns.max()),
                "effort": dataclasses.asdict(effort),
                "seconds": round(seconds, 1),
            }
        )
    return rows


def with_truth(rows: Sequence[dict[str, Any]], results: Path) -> list[dict[str, Any]]:
    """The rows whose policies have played: with their discounted returns, and their scores."""
    played = {
        (cell.key, row.seed, json.dumps(row.setting)): (cell, row) for cell in read_cells(results) for row in cell.final
    }
    found: list[dict[str, Any]] = []
    for row in rows:
        cell, final = played.get((row["key"], row["seed"], json.dumps(row["setting"])), (None, None))
        if cell is None or final is None or final.discounted_returns is None or cell.data.task is None:
            continue
        scores = normalised_score(cell.data.task, np.array(final.returns, float))
        found.append({**row, "discounted": final.discounted_returns, "scores": scores.tolist()})
    return found


# --- Summary ----------------------------------------------------------------------------------------------------------


RENAMED = {"model_spread": "model_gain_spread", "episode": "model_episode", "episode_spread": "model_episode_spread"}
"""Names of the committed rows, and what the package calls these numbers now."""


def facts_in(row: dict[str, Any]) -> Any:
    """What the estimators said of a policy; committed rows have the replicates' gains beside the diagnostics."""
    from sbac.trust.evidence import Facts, summary

    said: dict[str, float | None] = row["diagnostics"]
    facts = Facts({RENAMED.get(name, name): number for name, number in said.items() if number is not None})
    if "gains" in row:
        facts.update(summary("fitted_gain", np.array(row["gains"])))
        facts.update(summary("fitted_log", np.full(len(row["gains"]), row["own"])))
    return facts


def candidates_of(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """The candidates with the estimates that the present thresholds give."""
    from sbac.trust.choosing import candidate_record
    from sbac.trust.estimates import conclude

    estimates = [conclude(facts_in(row), learned=True) for row in rows]
    return [
        candidate_record(row["label"], row["seed"], row["setting"], estimate)
        for row, estimate in zip(rows, estimates, strict=True)
    ]


class Chosen(NamedTuple):
    """The outcome of one choice; regrets are in points below the oracle."""

    task: str
    rank: float
    regret: float
    preset: float
    """The regret of the preset's setting."""
    random: float
    """The mean regret of all settings."""
    warned: bool
    best: float
    """The oracle's score."""


def choices(rows: list[dict[str, Any]], each_seed: bool = True) -> list[Chosen]:
    """One choice for each task and seed: regret beside a random choice, the preset's setting and the oracle.

    Without `each_seed`, one choice for each task, among all its policies.

    The oracle chooses on the first half of the episodes; everything is scored on the second.
    """
    from sbac.trust.deciding import decide, usual_candidate

    found: list[Chosen] = []
    for task, seed in sorted({(row["data"], row["seed"] if each_seed else None) for row in rows}):
        own = [row for row in rows if row["data"] == task and seed in (row["seed"], None)]
        halves = [np.array_split(np.array(row["scores"]), 2) for row in own]
        chosen_on, scored = (np.array([half[i].mean() for half in halves]) for i in (0, 1))
        candidates, preset = candidates_of(own), own[0]["preset"]
        labels = [row["label"] for row in own]
        verdict = decide(candidates, preset)
        taken, usual = labels.index(verdict.label), labels.index(usual_candidate(candidates, preset).label)
        best = scored[chosen_on.argmax()]
        promises = [candidate.promise for candidate in candidates]  # what they are ranked by
        true_scores = [np.mean(row["scores"]) for row in own]
        rank = float(np.asarray(stats.spearmanr(promises, true_scores))[0]) if len(own) > 2 else np.nan
        warned = candidates[taken].set_aside or not verdict.decided
        found.append(
            Chosen(
                task,
                rank,
                float(best - scored[taken]),
                float(best - scored[usual]),
                float(best - scored.mean()),
                warned,
                float(best),
            )
        )
    return found


def choice_lines(found: list[Chosen]) -> list[str]:
    lines = [
        "task | choices | rank correlation | regret: chosen, preset, random | worst below the preset without a warning"
    ]
    for task in [*sorted({entry.task for entry in found}), "all"]:
        part = [entry for entry in found if task in (entry.task, "all")]
        silent = [entry.preset - entry.regret for entry in part if not entry.warned]
        rank = np.nanmean([entry.rank for entry in part])
        regrets = [np.mean(column) for column in zip(*((e.regret, e.preset, e.random) for e in part), strict=True)]
        numbers = " ".join(f"{regret:.1f}" for regret in regrets)
        lines.append(f"{task} | {len(part)} | {rank:.2f} | {numbers} | {min(silent, default=float('nan')):.1f}")
    best = np.mean([entry.best for entry in found])
    chosen, usual = (np.mean([getattr(entry, name) for entry in found]) for name in ("regret", "preset"))
    return [*lines, f"score: chosen {best - chosen:.1f}, preset {best - usual:.1f}, oracle {best:.1f}"]


def against(rows: list[dict[str, Any]], rivals: Sequence[CellRecord], developed_on: Sequence[CellRecord]) -> list[str]:
    """The chosen policies, one for each seed, against every method with one setting and with its best for each task."""
    from sbac.lab.choosing import differences
    from sbac.lab.naming import collect
    from sbac.lab.tables import score_tables
    from sbac.text import within
    from sbac.trust.deciding import decide

    ours: dict[str, list[float]] = {}
    for task, seed in sorted({(row["data"], row["seed"]) for row in rows}):
        own = [row for row in rows if (row["data"], row["seed"]) == (task, seed)]
        label = decide(candidates_of(own), own[0]["preset"]).label
        ours.setdefault(task, []).append(float(np.mean(next(row["scores"] for row in own if row["label"] == label))))
    lines = ["method | tasks of both | chosen by the log | the method | difference | tasks drawn too"]
    first, *others = score_tables(collect(rivals, developed_on))
    for table in [first, *(other for other in others if other.length == first.length)]:
        lines.append(f"-- {table.title}")
        for method in table.methods:
            tasks = [task for task in table.datasets if task in ours and (task, method) in table.chosen]
            chosen = [np.array(ours[task]) for task in tasks]
            theirs = [table.chosen[task, method].scores for task in tasks]
            found = differences(chosen, {method: theirs})[method]
            means = " | ".join(f"{np.mean([s.mean() for s in side]):.1f}" for side in (chosen, theirs))
            intervals = f"{within(*found.tasks_fixed)} | {within(*found.tasks_drawn)}"
            lines.append(f"{method} | {len(tasks)} | {means} | {intervals}")
    return lines


class Covered(NamedTuple):
    """A policy's interval against the truth; None where a warning took the interval away."""

    task: str
    inside: dict[float, bool] | None
    """By nominal level."""
    score: float
    trivial: float
    """The score of the interval from 0 to the best logged return."""


def coverage(rows: list[dict[str, Any]]) -> list[Covered]:
    """Whether the interval of the gain holds the truth, for every policy and nominal level."""
    from scipy.special import stdtrit

    from sbac.trust.estimates import conclude

    found: list[Covered] = []
    for row in rows:
        estimate = conclude(facts_in(row), learned=True)
        if not estimate.has_interval:
            found.append(Covered(row["data"], None, np.nan, np.nan))
            continue
        truth = np.mean(row["discounted"]) - row["log"]
        error = np.std(row["discounted"], ddof=1) / np.sqrt(len(row["discounted"]))
        half, count = estimate.gain_high - estimate.gain, estimate.diagnostics["fitted_gain_draws"]
        below = estimate.gain - estimate.gain_low
        inside: dict[float, bool] = {}
        for level in LEVELS:
            ratio = float(stdtrit(count - 1, 0.5 + level / 2) / stdtrit(count - 1, 0.95))
            own_error = stats.norm.ppf(0.5 + level / 2) * error  # the truth is a mean of episodes
            allowed = np.hypot(ratio * (half if truth > estimate.gain else below), own_error)
            inside[level] = bool(abs(truth - estimate.gain) <= allowed)
        trivial = interval_score(0.0, row["best_logged"] - row["log"], truth)
        found.append(
            Covered(row["data"], inside, interval_score(estimate.gain_low, estimate.gain_high, truth), trivial)
        )
    return found


def calibration(found: list[Covered]) -> dict[float, float]:
    """The share of truths inside, by nominal level."""
    return {level: float(np.mean([c.inside[level] for c in found if c.inside is not None])) for level in LEVELS}


def coverage_lines(found: list[Covered]) -> list[str]:
    lines = ["task | policies | warned | inside the 90 % interval | interval score: ours, trivial"]
    by_task: list[float] = []
    for task in sorted({entry.task for entry in found}):
        own = [entry for entry in found if entry.task == task]
        sure = [entry for entry in own if entry.inside is not None]
        if not sure:
            lines.append(f"{task} | {len(own)} | 100 % | none |")
            continue
        by_task.append(calibration(sure)[0.9])
        scores = f"{np.mean([e.score for e in sure]):.1f} {np.mean([e.trivial for e in sure]):.1f}"
        warned = 100 * (1 - len(sure) / len(own))
        lines.append(f"{task} | {len(own)} | {warned:.0f} % | {100 * by_task[-1]:.0f} % | {scores}")
    if by_task:
        error = np.std(by_task, ddof=1) / np.sqrt(len(by_task)) if len(by_task) > 1 else np.nan
        scores = f"{np.nanmean([e.score for e in found]):.1f}, trivial {np.nanmean([e.trivial for e in found]):.1f}"
        lines.append(f"mean over tasks: {100 * np.mean(by_task):.0f} +- {100 * error:.0f} %; interval score {scores}")
        lines.append(
            "nominal: inside: " + ", ".join(f"{level:g}: {share:.2f}" for level, share in calibration(found).items())
        )
    return lines


def draw(chosen: list[Chosen], covered: list[Covered], path: Path) -> None:
    """Left: regret by task. Right: the calibration curve, each task's thin."""
    from sbac.lab.naming import short_name
    from sbac.report.drawing import COLOURS, new_figure, png_bytes

    figure, (left, right) = new_figure(2, 2, 4.6, 3.4)
    tasks = sorted({entry.task for entry in chosen})
    for place, (name, label) in enumerate(
        (("regret", "sbac select"), ("preset", "the preset's"), ("random", "random"))
    ):
        means = [np.mean([getattr(entry, name) for entry in chosen if entry.task == task]) for task in tasks]
        left.barh(np.arange(len(tasks)) + 0.27 * (place - 1), means, 0.25, color=COLOURS[place], label=label)
    left.set_yticks(range(len(tasks)), [short_name(task) for task in tasks])
    left.invert_yaxis()
    left.set_xlabel("points below the best of seven alphas")
    left.legend(frameon=False, fontsize="small")
    for task in tasks:
        own = calibration([entry for entry in covered if entry.task == task])
        right.plot(list(own), list(own.values()), color="0.8", linewidth=0.8)
    overall = calibration(covered)
    right.plot([0.45, 1], [0.45, 1], color="0.5", linestyle="dotted")
    right.plot(list(overall), list(overall.values()), "o-", color=COLOURS[0])
    right.set_xlabel("nominal level of the interval")
    right.set_ylabel("share of truths inside")
    path.write_bytes(png_bytes(figure))


def interval_score(low: float, high: float, truth: float, level: float = 0.9) -> float:
    """The width, and a penalty for a truth outside: smaller is better, and honest intervals are best."""
    return high - low + 2 / (1 - level) * (max(low - truth, 0.0) + max(truth - high, 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a results folder of sbac bench")
    parser.add_argument("--out", type=Path, default=Path("lab-notes/trust/table.jsonl"))
    parser.add_argument("--effort", help="quick or full")
    parser.add_argument("--seeds", nargs="+", type=int, help="only these seeds in the summary")
    parser.add_argument("--summary", action="store_true", help="only summarise the file")
    parser.add_argument("--against", nargs="+", type=Path, default=[], metavar="DIR", help="results of other methods")
    parser.add_argument("--developed-on", type=Path, metavar="DIR", help="what their one setting was fixed on")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the summary")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    for cell in [] if args.summary else read_cells(args.results):
        if cell.key in {row["key"] for row in rows} or not (folder_of(args.results, cell) / "policies").is_dir():
            continue
        new = measure(args.results, cell, args.effort)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in new))
        rows += new
        print(f"{cell.data.name}: {len(new)} policies, estimates after {new[0]['seconds']:.0f} s", flush=True)
    rows = [row for row in with_truth(rows, args.results) if args.seeds is None or row["seed"] in args.seeds]
    if rows:
        chosen, covered = choices(rows), coverage(rows)
        print("\n".join([*choice_lines(chosen), "", *coverage_lines(covered)]))
        if args.against:
            rivals = [cell for folder in args.against for cell in read_cells(folder)]
            developed_on = read_cells(args.developed_on) if args.developed_on else []
            print("\n".join(["", *against(rows, rivals, developed_on)]))
        print("\none choice a task, among all its policies: " + choice_lines(choices(rows, each_seed=False))[-1])
        if args.picture is not None:
            draw(chosen, covered, args.picture)


if __name__ == "__main__":
    main()
