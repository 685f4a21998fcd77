"""The judge's test bed: policies that fall, played, and what the judge says of them.

python lab-notes/judge/bed.py policies --out OUT --logs L ... [--preset quick] [--steps N ...] [--critic mu]
python lab-notes/judge/bed.py judge    --out OUT --logs L ... [--effort quick]
python lab-notes/judge/bed.py table    --out OUT [--logs L ...] [--variants V ...]

Each stage goes on where it was stopped, log after log; logs may be shared out among processes. `judge` fits values and
the model; `table` reads what is there, other variants of the model too, which were judged at earlier commits (README).
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import brentq
from scipy.stats import spearmanr

from sbac.trust.choosing import candidate_record
from sbac.trust.estimates import conclude
from sbac.trust.evidence import AS_LOGGED, Effort, Facts, find_effort, summary
from sbac.trust.model import ended_as_logged
from sbac.trust.watching import Watched

ROWS = 400_000
"""Of a log, at most."""
METHODS: dict[str, dict[str, Any]] = {
    "sbac": {"alpha": [0.125, 1.0]},
    "iql": {},
    "rebrac": {},
    "td3-bc": {},
    "bc": {},
}
STEPS = (500, 2_000, 20_000)
EPISODES, DISCOUNT, SEED = 30, 0.99, 200
MODEL, NONE, BEFORE = "model", "none", "before"
"""The variants that are the package's own model, fitted Q evaluation alone, and the rule before (`former.py`)."""


# --- Policies ---------------------------------------------------------------------------------------------------------


def policies(options: argparse.Namespace) -> None:
    import sbac
    from sbac.making.making import identity, make_datasets

    for log in options.logs:
        for folder in ("data", "truth", f"policies/{log}"):
            (options.out / folder).mkdir(parents=True, exist_ok=True)
        file, began = options.out / "data" / f"{log}.npz", time.time()
        if not file.is_file():
            make_datasets(log, out=file.parent, size=min(identity(log, None, 0).size, ROWS), progress=False)
            print(f"{log}: made, {time.time() - began:.0f} s", flush=True)
        data = sbac.load(file)
        for steps in options.steps:
            for method in options.methods:
                if not (options.out / "truth" / f"{log}.{method}.{steps}.jsonl").is_file():
                    extra = {"critic": options.critic} if method == "sbac" else {}
                    print(train_and_play(options.out, data, log, method, steps, options.preset, extra), flush=True)


def train_and_play(out: Path, data: Any, log: str, method: str, steps: int, preset: str, extra: dict[str, Any]) -> str:
    import sbac
    from sbac.evaluation.rollout import Evaluator

    play, began = Evaluator(log), time.time()
    options = METHODS[method] | extra
    run = sbac.train(data, method, preset=preset, seeds=[SEED], steps=steps, evaluate=False, progress=False, **options)
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
        lines.append(json.dumps(record) + "\n")
    (out / "truth" / f"{log}.{method}.{steps}.jsonl").write_text("".join(lines))
    return f"{log} {preset} {method} {steps}: {trained:.0f} s + {time.time() - began - trained:.0f} s"


# --- The judge --------------------------------------------------------------------------------------------------------


def effort_of(name: str) -> Any:
    return Effort(2, 2, (32, 32), 64, (100, 100), 2e-3, 0.1, (32, 32), 100) if name == "tiny" else find_effort(name)


def judge_log(out: Path, log_name: str, effort_name: str) -> str:
    """Fits and rolls out; a line for the values and one for the model."""
    import sbac
    from sbac.trust import behaviour, fitting
    from sbac.trust.evidence import Question, facts_of
    from sbac.trust.log import read_log
    from sbac.trust.model import knowledge, rollouts
    from sbac.trust.walking import episode_returns

    path = out / "judged" / f"{log_name}.jsonl"
    done = {record["variant"] for record in read(path)} if path.is_file() else set[str]()
    if MODEL in done:
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

    if "values" not in done:
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
    rolled, known = question.once(rollouts), question.once(knowledge)
    parts = ("gains", "episodes", "shares", "lengths", "early", "per_step")
    told = {label: {part: getattr(rolled, part)[i].tolist() for part in parts} for i, label in enumerate(labels)}
    write(MODEL, known={"way": "acted again", **known.facts()}, policies=told)
    return f"{log_name}: done"


def judge(options: argparse.Namespace) -> None:
    (options.out / "judged").mkdir(parents=True, exist_ok=True)
    for log in options.logs:
        print(judge_log(options.out, log, options.effort), flush=True)


# --- The table --------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def chance_of(length: float, steps: int) -> float:
    """The constant chance of an end at each step by which episodes of at most `steps` last so long on average."""
    if length > steps - 1e-3:
        return 1e-9
    return cast(float, brentq(lambda chance: (1 - (1 - chance) ** steps) / chance - length, 1e-9, 1 - 1e-9))


def spurious_ends(known: dict[str, Any], steps: int) -> float:
    """Of earlier records, which have no ends of held-out episodes, by their lengths."""
    if "model_spurious_ends" in known:
        return known["model_spurious_ends"]
    return chance_of(known["model_log_length"], steps) - chance_of(known["log_length"], steps)


def cases(out: Path, log: str, variant: str) -> Iterator[dict[str, Any]]:
    """Every policy of a log: its truth, and its estimate with this variant's model."""
    judged = {record["variant"]: record for record in read(out / "judged" / f"{log}.jsonl")}
    if "values" not in judged or (variant not in judged and variant != NONE):
        return
    values, model = judged["values"], judged.get(variant, {})
    steps, known = values["longest"], model.get("known", {})
    share = 1 - (1 - chance_of(values["log_length"], steps)) ** steps  # of the log's episodes that end early
    departing = departures(out, log) if variant == MODEL else {}
    ends = Watched("end", "end", np.zeros(1), (np.arange(1_000) < 1_000 * share).astype(float), share)
    for truth in (record for path in sorted((out / "truth").glob(f"{log}.*.jsonl")) for record in read(path)):
        label, lengths = truth["policy"], np.array(truth["lengths"])
        said = values["policies"].get(label)
        if said is None:
            continue
        facts = Facts(values["facts"], **said["diagnostics"], log_episode=values["log_return"])
        low, high = (steps * (1 - DISCOUNT) * facts[f"{end}_possible"] for end in ("lowest", "highest"))
        facts = Facts({"lowest_episode": low, "highest_episode": high} | departing | facts)
        draws = {f"fitted_{quantity}": drawn for quantity, drawn in said["fitted"].items()}
        if rolled := model.get("policies", {}).get(label):
            draws |= {"model_gain": rolled["gains"], "model_episode": rolled["episodes"]}
            facts["model_share"] = rolled["shares"]
            if known.get("way") == "acted again":  # not the draws of a clone, as in the first results
                facts.update({k: v for k, v in known.items() if isinstance(v, float)})
        if rolled and "lengths" in rolled:
            lived, early = np.array(rolled["lengths"]), np.array(rolled["early"])
            lasting, ending = ended_as_logged(lived, early, spurious_ends(known, steps), steps)
            per_step = np.array(rolled.get("per_step", np.array(rolled["episodes"]) / lived))
            draws |= {f"model_episode{AS_LOGGED}": per_step * lasting, f"model_{ends.quantity}": early - share}
            draws |= {f"model_{ends.quantity}{AS_LOGGED}": ending - share}
        for name, drawn in draws.items():
            facts.update(summary(name, np.array(drawn)))
        estimate = conclude(facts, learned=True, watches=[ends])
        watched, record = estimate.watched[0], candidate_record(label, 0, {}, estimate)
        yield {
            "policy": label,
            "steps": truth.get("steps"),
            "told": estimate.has_interval,
            "falls": lengths.mean() < 0.8 * steps,
            "score": truth["score"],
            "promise": record.promise,
            "record": record,
            "gain": Told(estimate.gain, estimate.gain_low, estimate.gain_high,
                         np.mean(truth["discounted"]) - facts["log"], 0.0, facts["return_deviation"]),
            "episode": Told(estimate.episode, estimate.episode_low, estimate.episode_high,
                            float(np.mean(truth["returns"])), values["log_return"], facts["episode_deviation"]),
            "ends": Told(number(watched.rate), number(watched.low), number(watched.high),
                         float((lengths < steps).mean()), share, 1.0),
        }  # fmt: skip


def departures(out: Path, log: str) -> dict[str, float]:
    """What lasting departures cost, of records from before the judge asked for it (`departing.py`)."""
    file = out / "judged" / f"{log}.departing.json"
    if not file.is_file():
        return {}
    told = json.loads(file.read_text())
    one = told["departures"].index(1.0)
    names = {"model_departure": "episodes", "model_departure_discounted": "returns"}
    return {name: told[earned][0] - told[earned][one] for name, earned in names.items()}


def cases_before(out: Path, log: str) -> Iterator[dict[str, Any]]:
    """The same policies by the rule before, which has no interval for whole episodes."""
    answers = json.loads((out / "former" / f"{log}.json").read_text())
    for case in cases(out, log, MODEL):
        said = answers[case["policy"]]
        gain = case["gain"]._replace(mean=said["gain"], low=number(said["low"]), high=number(said["high"]))
        episode = case["episode"]._replace(mean=number(said["episode"]), low=math.nan, high=math.nan)
        told = {"told": said["low"] is not None, "gain": gain, "episode": episode, "promise": number(said["episode"])}
        yield case | told | {"ends": case["ends"]._replace(low=math.nan, high=math.nan)}


def number(told: float | None) -> float:
    return math.nan if told is None else told


class Told(NamedTuple):
    """A quantity with its interval, the truth, the log's own and its unit."""

    mean: float
    low: float
    high: float
    truth: float
    log: float
    unit: float

    @property
    def holds(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def score(self) -> float:
        """Winkler's interval score in deviations of the log's returns: width, and 20 times what is missed."""
        missed = max(self.low - self.truth, self.truth - self.high, 0.0)
        return (self.high - self.low + 20 * missed) / self.unit

    @property
    def above_and_wrong(self) -> bool:
        return self.low > self.log > self.truth


def by_the_logs_spread(case: dict[str, Any]) -> dict[str, Any]:
    """The same case with the log's own mean and deviation as the estimate."""
    spread = {
        name: told._replace(mean=told.log, low=told.log - 1.645 * told.unit, high=told.log + 1.645 * told.unit)
        for name in ("gain", "episode")
        for told in [case[name]]
    }
    return case | spread


def share_of(flags: Iterable[bool]) -> str:
    flags = list(flags)
    return f"{sum(flags)}/{len(flags)}"


def figures(listed: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage and the rest, over cases of one or of several logs."""
    told = [c for c in listed if c["told"]]
    row: dict[str, Any] = {"told": f"{len(told)}/{len(listed)}"}
    for name in ("gain", "episode"):
        row |= {
            f"{name} holds": share_of(c[name].holds for c in told),
            f"{name}, fallers": share_of(c[name].holds for c in told if c["falls"]),
            f"{name} above and wrong": sum(c[name].above_and_wrong for c in told),
            f"{name} score": np.mean([c[name].score for c in told]),
            f"{name} error": np.median([abs(c[name].mean - c[name].truth) / c[name].unit for c in listed]),
        }
    row["ends hold"] = share_of(c["ends"].holds for c in told if c["ends"].log > 0 and math.isfinite(c["ends"].low))
    row["better, warned"] = share_of(not c["told"] for c in listed if c["gain"].truth > 0)
    return row


def choice(listed: list[dict[str, Any]]) -> dict[str, float]:
    """Of one log: the ranks of whole episodes, and what the largest promise (warned ones last) loses to the best."""
    told = [c["promise"] for c in listed]
    chosen = max(listed, key=lambda c: (c["told"], c["promise"]))
    return {
        "ranks": float(spearmanr(told, [c["episode"].truth for c in listed])[0]),  # type: ignore[index]
        "regret": max(c["score"] for c in listed) - chosen["score"],
    }


Cases = dict[str, list[dict[str, Any]]]
"""By log."""


def promised(case: dict[str, Any]) -> tuple[bool, float]:
    """The order in which policies are taken: warned ones last, then by the promise."""
    return case["told"], case["promise"]


def among_methods(
    by_log: Cases, order: Callable[[dict[str, Any]], Any] = promised
) -> dict[str, list[dict[str, float]]]:
    """By log, for each length of training: what is taken of the policies of this length, the best, and each method."""
    chosen: dict[str, list[dict[str, float]]] = {}
    for log, listed in by_log.items():
        for steps in sorted({c["steps"] for c in listed}):
            alike = [c for c in listed if c["steps"] == steps]
            scores = {c["policy"].replace(f"-{steps}-seed{SEED}", ""): c["score"] for c in alike}
            row = {"taken": max(alike, key=order)["score"], "best": max(scores.values())} | scores
            chosen.setdefault(log, []).append(row)
    return chosen


def taken_text(chosen: dict[str, list[dict[str, float]]]) -> str:
    rows = [row for of_log in chosen.values() for row in of_log]
    means = {name: np.mean([row[name] for row in rows if name in row]) for name in rows[0]}
    return f"of one length, {len(rows)} choices: " + ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())


def now_less_before(new: Cases, old: Cases, draws: int = 10_000) -> str:
    """Of what is taken, with 95 %: the logs are drawn anew."""
    pairs = zip(among_methods(new).values(), among_methods(old).values(), strict=True)
    apart = np.array([np.mean([a["taken"] - b["taken"] for a, b in zip(*of_log, strict=True)]) for of_log in pairs])
    drawn = np.random.default_rng(0).choice(apart, (draws, len(apart))).mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"taken, now less before: {apart.mean():.1f} [{low:.1f}, {high:.1f}]"


def where_both_tell(new: Cases, old: Cases) -> str:
    """Gains of the policies for which both rules give an interval: how many hold, and the interval score."""
    pairs = [(c, d) for log in new for c, d in zip(new[log], old[log], strict=True) if c["told"] and d["told"]]
    words: list[str] = []
    for name, listed in (("now", [c for c, _ in pairs]), ("before", [d for _, d in pairs])):
        words.append(
            f"{name} {share_of(c['gain'].holds for c in listed)}, {np.mean([c['gain'].score for c in listed]):.1f}"
        )
    spread = np.mean([by_the_logs_spread(c)["gain"].score for c, _ in pairs])
    return f"where both rules tell: {'; '.join(words)}; the log's spread {spread:.1f}"


def pooled(by_log: Cases) -> dict[str, Any]:
    """The shares that are reported, over all cases."""
    listed = [c for cases in by_log.values() for c in cases]
    told = [c for c in listed if c["told"]]
    spread = [by_the_logs_spread(c) for c in told]
    return {
        "gains hold": np.mean([c["gain"].holds for c in told]),
        "gains of fallers hold": np.mean([c["gain"].holds for c in told if c["falls"]]),
        "episodes hold": np.mean([c["episode"].holds for c in told]),
        "episodes of fallers hold": np.mean([c["episode"].holds for c in told if c["falls"]]),
        "better than the log, warned": np.mean([not c["told"] for c in listed if c["gain"].truth > 0]),
        "score of gains": np.mean([c["gain"].score for c in told]),
        "the same less that of the log's spread": np.mean([c["gain"].score for c in told])
        - np.mean([c["gain"].score for c in spread]),
        "score of episodes": np.mean([c["episode"].score for c in told]),
        "the same less that of the log's spread for episodes": np.mean([c["episode"].score for c in told])
        - np.mean([c["episode"].score for c in spread]),
    }


def by_drawing_logs(by_log: Cases, draws: int = 2_000) -> Iterator[str]:
    """Each share with its 90 % interval: the logs are drawn anew."""
    rng, logs = np.random.default_rng(0), list(by_log.values())
    drawn = [
        pooled({str(i): logs[log] for i, log in enumerate(rng.integers(len(logs), size=len(logs)))})
        for _ in range(draws)
    ]
    for name, value in pooled(by_log).items():
        low, high = np.nanquantile([each[name] for each in drawn], [0.05, 0.95])
        yield f"{name}: {value:.3f} [{low:.3f}, {high:.3f}]"


def table(options: argparse.Namespace) -> None:
    logs = options.logs or [path.stem for path in sorted((options.out / "judged").glob("*.jsonl"))]
    judged = [record for log in logs for record in read(options.out / "judged" / f"{log}.jsonl")]
    before = [BEFORE] if all((options.out / "former" / f"{log}.json").is_file() for log in logs) else []
    listed = dict.fromkeys([NONE, *before, *(r["variant"] for r in judged if r["variant"] != "values")])
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for variant in options.variants or listed:
        told_by = cases_before if variant == BEFORE else partial(cases, variant=variant)
        by_log = {log: each for log in logs if (each := list(told_by(options.out, log)))}
        for log, each in by_log.items():
            rows.append({"variant": variant, "log": log, **figures(each), **choice(each)})
        whole = [c for each in by_log.values() for c in each]
        means = {name: np.mean([choice(c)[name] for c in by_log.values()]) for name in ("ranks", "regret")}
        rows.append({"variant": variant, "log": f"all {len(by_log)}", **figures(whole), **means})
        by_spread = figures([by_the_logs_spread(c) for c in whole]) | {"ends hold": "", "ranks": "", "regret": ""}
        rows.append({"variant": "the log's spread", "log": f"all {len(by_log)}, as warned", **by_spread})
        lines += [f"\n{variant}, by drawing logs:", *by_drawing_logs(by_log), taken_text(among_methods(by_log))]
        if before and variant == MODEL:
            old = {log: list(cases_before(options.out, log)) for log in by_log}
            lines += [where_both_tell(by_log, old), now_less_before(by_log, old)]
        for log, each in by_log.items():
            for c in each:
                for name in ("gain", "episode"):
                    if c["told"] and not c[name].holds:
                        wrong = ", above the log and wrong" if c[name].above_and_wrong else ""
                        lines.append(f"missed: {log} {c['policy']} {name} {[round(x, 1) for x in c[name]]}{wrong}")
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    print("\n".join(lines))
    print("\nThe log itself in the model: earned - true, spread, length, true length")
    for record in judged:
        if known := record.get("known"):
            numbers = [known[n] for n in ("model_missed", "model_missed_spread", "model_log_length", "log_length")]
            print(record["log"], record["variant"], *(f"{x:.1f}" for x in numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages: dict[str, Callable[[argparse.Namespace], None]] = {"policies": policies, "judge": judge, "table": table}
    parser.add_argument("stage", choices=stages)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+")
    parser.add_argument("--steps", nargs="+", type=int, default=list(STEPS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--critic", default="mu", help="of sbac: the preset's own when the first beds were made")
    parser.add_argument("--variants", nargs="+")
    parser.add_argument("--effort", default="quick")
    options = parser.parse_args()
    stages[options.stage](options)


if __name__ == "__main__":
    main()
