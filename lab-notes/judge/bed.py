"""The judge's test bed: policies that fall, played, and what each variant of the learned model says of them.

python lab-notes/judge/bed.py policies --out OUT [--logs L ...] [--steps N ...] [--rows N] [--workers N]
python lab-notes/judge/bed.py judge    --out OUT [--logs L ...] [--variants V ...] [--workers N] [--effort quick]
python lab-notes/judge/bed.py table    --out OUT [--logs L ...] [--variants V ...]

Each stage goes on where it was stopped. `policies` trains on CPU cores, a process for each method and number of steps;
`judge` has a process for each log, which fits values once and then every variant's model; `table` reads what is there.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LOGS = {
    "walker2d-medium-replay-made": 300_000,
    "walker2d-medium-made": 400_000,
    "hopper-medium-made": 400_000,
    "hopper-medium-replay-made": 400_000,
    "halfcheetah-medium-expert-made": 400_000,
}
METHODS: dict[str, dict[str, Any]] = {
    "sbac": {"alpha": [0.125, 1.0]},
    "iql": {},
    "rebrac": {},
    "td3-bc": {},
    "bc": {},
}
STEPS = (500, 2_000, 6_000, 20_000)
EPISODES, DISCOUNT, SEED = 30, 0.99, 200


class Variant(NamedTuple):
    """A model: its form, how long it is trained beside the effort's steps, its widths, and where rollouts are cut."""

    form: Any
    longer: int = 1
    hidden: tuple[int, ...] | None = None
    quantile: float = 1.0
    """Of the members' disagreement at the log's rows."""


def variants() -> dict[str, Variant]:
    """In the order in which they are worth most, in case time runs out."""
    from sbac.trust.dynamics import Form

    plain, full = Form(5, False, False, False, False, False, False), Form()
    blind = replace(full, terminal_states=False)
    return {
        "today": Variant(None),
        "all": Variant(full),
        "all, cut at .999": Variant(full, quantile=0.999),
        "all, cut at .99": Variant(full, quantile=0.99),
        "all, no terminal s'": Variant(blind),
        "all, no terminal s', cut at .999": Variant(blind, quantile=0.999),
        "all, longer": Variant(full, 4),
        "all, longer, cut at .999": Variant(full, 4, quantile=0.999),
        "plain": Variant(plain),
        "next": Variant(replace(plain, end_sees_next=True, terminal_states=True)),
        "next, no terminal s'": Variant(replace(plain, end_sees_next=True)),
        "ten drawn": Variant(replace(plain, members=10, resampled=True)),
        "norm": Variant(replace(plain, normalise=True)),
        "likelihood": Variant(replace(plain, likelihood=True)),
        "noise": Variant(replace(plain, likelihood=True, noise=True)),
        "all but norm": Variant(replace(full, normalise=False)),
        "all but noise": Variant(replace(full, noise=False)),
        "all, wide": Variant(full, 2, (256, 256, 256)),
    }


# --- Policies ---------------------------------------------------------------------------------------------------------


def one_core() -> None:
    """A worker that keeps to the CPU, and to one core of it."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    cores = sorted(os.sched_getaffinity(0))
    identity = multiprocessing.current_process()._identity  # type: ignore[attr-defined]
    os.sched_setaffinity(0, {cores[(identity[0] - 1) % len(cores)]})


def train_and_play(out: Path, log: str, method: str, steps: int, seeds: int) -> str:
    import sbac
    from sbac.evaluation.rollout import Evaluator

    data, play = sbac.load(out / "data" / f"{log}.npz"), Evaluator(log)
    began = time.time()
    chosen = {"seeds": [SEED + i for i in range(seeds)], "steps": steps, **METHODS[method]}
    run = sbac.train(data, method, preset="quick", evaluate=False, progress=False, **chosen)
    trained = time.time() - began
    lines: list[str] = []
    for policy in run.policies:
        alpha = policy.config.get("alpha")
        label = f"{method}-{steps}-seed{policy.config['seed']}" + (f"-alpha{alpha:g}" if method == "sbac" else "")
        if not policy.is_finite:
            continue
        played = play(policy, EPISODES, 0, DISCOUNT)
        policy.save(out / "policies" / log / f"{label}.safetensors")
        record = {
            "log": log, "policy": label, "method": method, "steps": steps, "score": played.score,
            "returns": played.returns, "lengths": played.lengths, "discounted": played.discounted_returns,
        }  # fmt: skip
        lines.append(json.dumps(record))
    with (out / "truth" / f"{log}.{method}.{steps}.jsonl").open("w") as file:
        file.write("".join(line + "\n" for line in lines))
    return f"{log} {method} {steps}: {trained:.0f} s + {time.time() - began - trained:.0f} s"


def policies(options: argparse.Namespace) -> None:
    from sbac.making.making import make_datasets

    out = options.out
    for folder in ("data", "truth", *(f"policies/{log}" for log in options.logs)):
        (out / folder).mkdir(parents=True, exist_ok=True)
    began = time.time()
    for log in options.logs:
        make_datasets(log, out=out / "data", size=options.rows or LOGS[log], workers=options.workers, progress=False)
        print(f"{log}: made, {time.time() - began:.0f} s in all", flush=True)
    units = [
        (log, method, steps)
        for steps in sorted(options.steps, reverse=True)
        for method in options.methods
        for log in options.logs
        if not (out / "truth" / f"{log}.{method}.{steps}.jsonl").is_file()
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context, initializer=one_core) as pool:
        asked = {pool.submit(train_and_play, out, *unit, options.seeds): unit for unit in units}
        for number, answer in enumerate(as_completed(asked), 1):
            try:
                told = answer.result()
            except Exception as error:  # the other units go on
                told = f"{asked[answer]}: {type(error).__name__}: {error}"
            print(f"{time.time() - began:.0f} s, {number} of {len(units)}: {told}", flush=True)


# --- The judge --------------------------------------------------------------------------------------------------------


def effort_of(name: str) -> Any:
    from sbac.trust.evidence import Effort, find_effort

    return Effort(2, 2, (32, 32), 64, (100, 100), 2e-3, 0.1, (32, 32), 100) if name == "tiny" else find_effort(name)


def judge_log(out: Path, log_name: str, wanted: Sequence[str], effort_name: str) -> str:
    """Fits and rolls out; a line for the values and one for each variant."""
    import sbac
    from sbac.trust import behaviour, fitting
    from sbac.trust.dynamics import disagreements, learn
    from sbac.trust.evidence import Question, facts_of
    from sbac.trust.knowing import know
    from sbac.trust.log import read_log
    from sbac.trust.model import roll
    from sbac.trust.walking import episode_returns

    sys.path.insert(0, str(Path(__file__).parent))
    import former

    path = out / "judged" / f"{log_name}.jsonl"
    done = {record["variant"] for record in read(path)} if path.is_file() else set[str]()
    left = [name for name in ("values", *wanted) if name not in done]
    if not left:
        return f"{log_name}: nothing left"
    data = sbac.load(out / "data" / f"{log_name}.npz")
    files = sorted((out / "policies" / log_name).glob("*.safetensors"))
    question = Question(read_log(data, DISCOUNT), [sbac.Policy.load(f) for f in files], effort_of(effort_name))
    log, labels, began = question.log, [file.stem for file in files], time.time()

    def write(variant: str, **fields: Any) -> None:
        nonlocal began
        record = {"log": log_name, "variant": variant, "seconds": round(time.time() - began, 1), **fields}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{log_name} {variant}: {record['seconds']} s", flush=True)
        began = time.time()

    if "values" in left:
        said = zip(labels, fitting.evidence(question), behaviour.evidence(question), strict=True)
        write(
            "values",
            facts=facts_of(log, {}) | {"episode_deviation": float(episode_returns(log).std())},
            longest=log.longest,
            log_return=float(episode_returns(log).mean()),
            log_length=float(np.diff(log.data.episodes, axis=1).mean()),
            policies={
                label: {
                    "fitted": {name: draws.tolist() for name, draws in fitted.draws.items()},
                    "diagnostics": {**fitted.diagnostics, **distance.diagnostics},
                }
                for label, fitted, distance in said
            },
        )
    forms, kept = variants(), dict[Variant, Any]()
    for name in [name for name in wanted if name in left]:
        variant = forms[name]
        known: dict[str, Any] = {}
        if variant.form is None:
            rolled: Any = former.rollouts(question)
        else:
            same = variant._replace(quantile=1.0)
            if same not in kept:
                effort = replace(
                    question.effort,
                    model_steps=variant.longer * question.effort.model_steps,
                    model_hidden=variant.hidden or question.effort.model_hidden,
                )
                model = learn(log, effort, question.seed, variant.form)
                apart = np.asarray(disagreements(model, log.transitions.states, log.transitions.actions))
                kept = {same: (model, apart)}
            model, apart = kept[same]
            rolled = roll(question, model, float(np.quantile(apart, variant.quantile)))
            knowledge = know(question, model)
            known = {"way": "acted again", **knowledge.facts(), "error": knowledge.error}
            for part in ("returns", "true_returns", "lengths", "true_lengths"):
                known[part] = getattr(knowledge, part).tolist()
        said_of: dict[str, Any] = {}
        for i, label in enumerate(labels):
            said_of[label] = {part: getattr(rolled, part)[i].tolist() for part in ("gains", "episodes", "shares")}
            for part in ("lengths", "early") if variant.form is not None else ():
                said_of[label][part] = getattr(rolled, part)[i].tolist()
        write(name, known=known, policies=said_of)
    return f"{log_name}: done"


def judge(options: argparse.Namespace) -> None:
    (options.out / "judged").mkdir(parents=True, exist_ok=True)
    logs = [log for log in options.logs if (options.out / "policies" / log).is_dir()]
    if options.workers == 1:
        for log in logs:
            print(judge_log(options.out, log, options.variants, options.effort), flush=True)
        return
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        asked = {pool.submit(judge_log, options.out, log, options.variants, options.effort): log for log in logs}
        for answer in as_completed(asked):
            try:
                print(answer.result(), flush=True)
            except Exception as error:  # the other logs go on
                print(f"{asked[answer]}: {type(error).__name__}: {error}", flush=True)


# --- The table --------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def cases(out: Path, log: str, variant: str) -> Iterator[dict[str, Any]]:
    """Every policy of a log: its truth, and its estimate with this variant's model."""
    from sbac.trust.estimates import conclude
    from sbac.trust.evidence import Facts, summary

    judged = {record["variant"]: record for record in read(out / "judged" / f"{log}.jsonl")}
    if "values" not in judged or (variant not in judged and variant != "none"):
        return
    values, model = judged["values"], judged.get(variant, {})
    truths = [record for path in sorted((out / "truth").glob(f"{log}.*.jsonl")) for record in read(path)]
    for truth in truths:
        label = truth["policy"]
        said = values["policies"].get(label)
        if said is None:
            continue
        facts = Facts(values["facts"], **said["diagnostics"])
        for quantity, draws in said["fitted"].items():
            facts.update(summary(f"fitted_{quantity}", np.array(draws)))
        rolled = model.get("policies", {}).get(label)
        if rolled is not None:
            facts.update(summary("model_gain", np.array(rolled["gains"])))
            facts.update(summary("model_episode", np.array(rolled["episodes"])))
            facts["model_share"] = rolled["shares"]
            facts["log_episode"] = values["log_return"]
            if model["known"].get("way") == "acted again":  # not the draws of a clone, as in the first results
                facts.update({k: v for k, v in model["known"].items() if isinstance(v, float)})
        estimate = conclude(facts, learned=True)
        discounted, returns = np.array(truth["discounted"]), np.array(truth["returns"])
        yield {
            "policy": label,
            "falls": np.mean(truth["lengths"]) < 0.8 * values["longest"],
            "true_gain": discounted.mean() - facts["log"],
            "true_episode": returns.mean(),
            "log_episode": values["log_return"],
            "score": truth["score"],
            "estimate": estimate,
            "facts": facts,
            "true_length": float(np.mean(truth["lengths"])),
            "length": float(np.mean(rolled["lengths"])) if rolled and "lengths" in rolled else math.nan,
            "unit": facts["return_deviation"],
        }


def figures(listed: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage and the rest, over cases of one or of several logs."""

    def share(flags: Sequence[bool]) -> str:
        return f"{sum(flags)}/{len(flags)}"

    told = [c for c in listed if c["estimate"].has_interval]

    def holds(c: dict[str, Any]) -> bool:
        return c["estimate"].gain_low <= c["true_gain"] <= c["estimate"].gain_high

    def episode_holds(c: dict[str, Any]) -> bool:
        return c["estimate"].episode_low <= c["true_episode"] <= c["estimate"].episode_high

    def score(c: dict[str, Any]) -> float:
        """Winkler's interval score in deviations of the log's returns: width, and 20 times what is missed."""
        low, high, truth = c["estimate"].gain_low, c["estimate"].gain_high, c["true_gain"]
        return (high - low + 20 * max(low - truth, truth - high, 0.0)) / c["unit"]

    wrong = [c for c in told if c["estimate"].gain_low > 0 > c["true_gain"]]
    better = [c for c in listed if c["true_gain"] > 0]
    errors = [abs(c["estimate"].gain - c["true_gain"]) / c["unit"] for c in listed]
    lengths = [abs(c["length"] - c["true_length"]) for c in listed if math.isfinite(c["length"])]
    return {
        "told": share([c["estimate"].has_interval for c in listed]),
        "hold": share([holds(c) for c in told]),
        "fallers": share([holds(c) for c in told if c["falls"]]),
        "episode": share([episode_holds(c) for c in told]),
        "wrong above 0": len(wrong),
        "better, warned": share([not c["estimate"].has_interval for c in better]),
        "width": np.median(
            [(c["estimate"].gain_high - c["estimate"].gain_low) / c["unit"] for c in told] or [math.nan]
        ),
        "score": np.mean([score(c) for c in told] or [math.nan]),
        "error": np.median(errors),
        "length error": np.median(lengths or [math.nan]),
    }


def choice(listed: list[dict[str, Any]]) -> dict[str, float]:
    """Of one log: the ranks, and what the choice by the lower bound (warned ones last) loses against the best."""
    from scipy.stats import spearmanr

    estimates = [c["estimate"] for c in listed]
    truth = np.array([c["true_gain"] for c in listed])
    gains = np.array([e.gain for e in estimates])
    chosen = max(range(len(listed)), key=lambda i: (estimates[i].has_interval, estimates[i].gain_low, gains[i]))
    return {
        "ranks": float(spearmanr(gains, truth)[0]),  # type: ignore[index]
        "regret": listed[int(truth.argmax())]["score"] - listed[chosen]["score"],
    }


def table(options: argparse.Namespace) -> None:
    logs = [log for log in options.logs if (options.out / "judged" / f"{log}.jsonl").is_file()]
    rows: list[dict[str, Any]] = []
    for variant in ["none", *options.variants]:
        by_log = {log: found for log in logs if (found := list(cases(options.out, log, variant)))}
        for log, listed in by_log.items():
            rows.append({"variant": variant, "log": log, **figures(listed), **choice(listed)})
        if by_log:
            together = {name: np.mean([choice(c)[name] for c in by_log.values()]) for name in ("ranks", "regret")}
            whole = [c for listed in by_log.values() for c in listed]
            rows.append({"variant": variant, "log": f"all {len(by_log)}", **figures(whole), **together})
    if not rows:
        print("nothing was judged yet")
        return
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    print("\nThe log itself, as its clone lives in the model: earned - true, spread, length, true length")
    for log in logs:
        for record in read(options.out / "judged" / f"{log}.jsonl"):
            if known := record.get("known"):
                deviation = math.nan
                numbers = [known[n] for n in ("model_missed", "model_missed_spread", "model_log_length", "log_length")]
                print(
                    log, record["variant"], *(f"{x:.1f}" for x in numbers), "" if math.isnan(deviation) else deviation
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages: dict[str, Callable[[argparse.Namespace], None]] = {"policies": policies, "judge": judge, "table": table}
    parser.add_argument("stage", choices=stages)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=list(LOGS))
    parser.add_argument("--steps", nargs="+", type=int, default=list(STEPS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--variants", "--variant", nargs="+", default=list(variants()))
    parser.add_argument("--effort", default="quick")
    options = parser.parse_args()
    stages[options.stage](options)


if __name__ == "__main__":
    main()
