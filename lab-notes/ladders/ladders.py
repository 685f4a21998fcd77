"""Trains the policies behind the made data, and picks the ladders that are shipped.

python lab-notes/ladders/ladders.py train --minutes 9 --state STATE --out OUT --seeds 3     (again with the same STATE
                                                                                      to train on)
python lab-notes/ladders/ladders.py pick OUT/*.safetensors
python lab-notes/ladders/ladders.py demo                                                    (the embedded hopper-demo)
"""

import argparse
import functools
import io
import multiprocessing
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sbac.data.dataset import Dataset
from sbac.data.locating import embedded_file
from sbac.environments.lanes import Act, Lanes, acting, lane_seeds, open_lanes
from sbac.evaluation.rollout import rollout_lanes
from sbac.files import write_atomic
from sbac.making.ladder import Ladder, Rung, read_ladders, shipped, write_ladders
from sbac.making.making import REPLAY_SIZES
from sbac.making.shards import Shard, make_shard
from sbac.policy import FORMULAS, Floats

if TYPE_CHECKING:
    from sbac.training.online.learner import Learner

START = time.monotonic()
SHIPPED = shipped("").parent
EMBEDDED = embedded_file("hopper-demo")
BEST_FILE, OTHERS_FILE = 8_300_000, 12_400_000  # bytes
SHIPPED_FILE = {"sac": 7_900_000, "td3": 2_300_000}
EXPLORATION = 0.1
"""Deviation of the noise that TD3 explores with."""


class Task(NamedTuple):
    """An environment with its sizes, D4RL's reference returns, about the mean and the deviation of the scores of its
    medium data, and the least for an expert."""

    environment: str
    observations: int
    actions: int
    lowest: float
    highest: float
    medium: float
    medium_spread: float
    expert: float

    def score(self, returns: Sequence[float]) -> float:
        return 100.0 * (float(np.mean(returns)) - self.lowest) / (self.highest - self.lowest)

    def spread(self, returns: Sequence[float]) -> float:
        return 100.0 * float(np.std(returns)) / (self.highest - self.lowest)


TASKS = {
    "halfcheetah": Task("HalfCheetah-v4", 17, 6, -280.178953, 12135.0, 41.0, 3.0, 90.0),
    "hopper": Task("Hopper-v4", 11, 3, -20.272305, 3234.3, 44.0, 12.0, 95.0),
    "walker2d": Task("Walker2d-v4", 17, 6, 1.629008, 4592.3, 62.0, 24.0, 95.0),
}
NAMES = {task.environment: name for name, task in TASKS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.set_defaults(call=train)
    training.add_argument("--algorithm", choices=("sac", "td3"), default="sac", help="td3: the second ladder")
    training.add_argument("--minutes", type=float, default=9.0, help="wall clock, writing included")
    training.add_argument("--reserve", type=float, default=45.0, help="seconds of it kept for the end")
    training.add_argument("--state", type=Path, required=True, help="where training stops and continues")
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    training.add_argument("--total-steps", type=int, default=10_000_000)
    training.add_argument("--start-steps", type=int, default=10_000)
    training.add_argument("--round", type=int, default=512, help="environment steps and updates of a run in a round")
    training.add_argument("--instances", type=int, default=8, help="environments of a run, stepped together")
    training.add_argument("--capacity", type=int, default=1_000_000)
    training.add_argument("--unroll", type=int, default=1, help="updates unrolled in the compiled loop")
    training.add_argument("--every", type=int, default=5_000, help="steps between early snapshots; later 2 and 5 times")
    training.add_argument("--evaluators", type=int, default=5, help="processes")
    training.add_argument("--episodes", type=int, default=5, help="of each evaluation, by mode and by samples")
    picking = commands.add_parser("pick")
    picking.set_defaults(call=pick)
    picking.add_argument("files", nargs="+", type=Path)
    picking.add_argument("--out", type=Path, default=SHIPPED)
    picking.add_argument("--episodes", type=int, default=48)
    picking.add_argument("--workers", type=int, default=2)
    embedding = commands.add_parser("demo")
    embedding.set_defaults(call=demo)
    embedding.add_argument("--out", type=Path, default=EMBEDDED)
    embedding.add_argument("--size", type=int, default=90_000)
    embedding.add_argument("--able", type=float, default=0.9, help="share of the steps by policies that score over 20")
    embedding.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.call(arguments)


def train(options: argparse.Namespace) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # the processes that step environments use one core each
    os.environ.setdefault("MUJOCO_GL", "disable")
    import jax

    from sbac.algorithms import find
    from sbac.training.online.collector import Collectors
    from sbac.training.online.learner import Learner, OnlineRun, Schedule
    from sbac.training.online.train import rounds

    jax.config.update("jax_compilation_cache_dir", str(options.state.absolute().parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    method = find(options.algorithm)
    config = method.config(start_steps=options.start_steps)  # pyright: ignore[reportCallIssue]
    runs = [
        OnlineRun(TASKS[name].environment, TASKS[name].observations, TASKS[name].actions, seed, config)
        for name in options.tasks
        for seed in range(options.seeds)
    ]
    resumed = (options.state / "ladders.safetensors").exists()
    learner = Learner(method, runs, Schedule(options.instances, options.round, options.capacity, options.unroll))
    kind = "deterministic" if options.algorithm == "td3" else "tanh-gaussian"
    ladders = [Ladder(r.environment, kind, [], about(options.algorithm, r.seed)) for r in runs]
    evaluators = Evaluators(options.evaluators, options.episodes)
    if resumed:
        learner.load(options.state)
        ladders = read_ladders(options.state / "ladders.safetensors")
        for ladder in ladders:
            for rung in ladder.rungs:
                if not rung.mode:
                    evaluators.submit(ladder, rung)
    print(f"{jax.devices()[0]}, {len(runs)} runs, from step {learner.step}, {seconds():.0f} s", flush=True)

    schedule = ((100_000, options.every), (400_000, 2 * options.every), (10**12, 5 * options.every))
    deadline = START + 60 * options.minutes - options.reserve
    began, first, saved = time.monotonic(), learner.step, time.monotonic()

    def report() -> None:
        rate = (learner.step - first) / (time.monotonic() - began)
        for ladder, rung in evaluators.collect():
            name = NAMES[ladder.environment]
            mode, sampled = (f"{np.mean(r):7.0f} ({TASKS[name].score(r):5.1f})" for r in (rung.mode, rung.sampled))
            print(
                f"{seconds():4.0f} s  {name:12} seed {ladder.about['seed']}  step {rung.step:8}  mode {mode}"
                f"  sampled {sampled}  {rate:6.0f} steps/s  {len(evaluators.waiting)} waiting",
                flush=True,
            )

    generation = time.time_ns() if resumed else 0  # a resumed run begins new episodes
    try:
        with Collectors(runs, options.instances, options.round, generation) as collectors:
            for step, policies, _ in rounds(learner, collectors, options.start_steps, options.total_steps):
                if step >= options.start_steps and snapshot_due(step - options.round, step, schedule):
                    for ladder, policy in zip(ladders, policies, strict=True):
                        rung = Rung(step, {k: v.astype(np.float16) for k, v in policy.items()})
                        ladder.rungs.append(rung)
                        evaluators.submit(ladder, rung)
                report()
                if time.monotonic() - saved > 120:
                    saved = time.monotonic()
                    write_candidates(options.out, ladders)
                    print(f"{seconds():4.0f} s  step {learner.step}  {status(learner)}", flush=True)
                if time.monotonic() > deadline:
                    break
        jax.block_until_ready(learner.state)
        print(f"{seconds():4.0f} s  stopped at step {learner.step}, {status(learner)}", flush=True)
        while evaluators.waiting and time.monotonic() < deadline + 0.3 * options.reserve:
            time.sleep(0.2)
            report()
        write_candidates(options.out, ladders)
        save(options.state, learner, ladders)
        print(f"{seconds():4.0f} s  written", flush=True)
    finally:
        evaluators.close()


@functools.cache
def reused_lanes(env_id: str, count: int) -> Lanes:
    """Lanes that a process opens once."""
    return open_lanes(env_id, count, 0)


def returns(env_id: str, kind: str, arrays: Mapping[str, Floats], episodes: int, seed: int) -> tuple[Floats, Floats]:
    """Returns of whole episodes with the policy's mode, and with its samples."""
    mode = returns_of(env_id, functools.partial(FORMULAS[kind].mode, arrays), episodes, seed)
    return mode, sampled_returns(env_id, kind, arrays, episodes, seed)


def sampled_returns(env_id: str, kind: str, arrays: Mapping[str, Floats], episodes: int, seed: int) -> Floats:
    """Returns of whole episodes with the policy's samples."""
    noise = EXPLORATION if kind == "deterministic" else 0.0
    return returns_of(env_id, acting(kind, arrays, np.random.default_rng(seed), noise), episodes, seed)


def returns_of(env_id: str, act: Act, episodes: int, seed: int) -> Floats:
    return rollout_lanes(reused_lanes(env_id, episodes), act, lane_seeds(seed, episodes))[0]


class Evaluators:
    """Processes that play whole episodes with snapshots while training goes on."""

    def __init__(self, processes: int, episodes: int) -> None:
        self.pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
        self.episodes = episodes
        self.waiting: list[tuple[Ladder, Rung, Future[tuple[Floats, Floats]]]] = []

    def submit(self, ladder: Ladder, rung: Rung) -> None:
        played = self.pool.submit(returns, ladder.environment, ladder.kind, rung.policy(), self.episodes, rung.step)
        self.waiting.append((ladder, rung, played))

    def collect(self) -> list[tuple[Ladder, Rung]]:
        """What has been finished since the last call, its returns filled in."""
        done = [w for w in self.waiting if w[2].done()]
        self.waiting = [w for w in self.waiting if not w[2].done()]
        for _, rung, played in done:
            mode, sampled = played.result()
            rung.mode, rung.sampled = mode.tolist(), sampled.tolist()
        return [(ladder, rung) for ladder, rung, _ in done]

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


def snapshot_due(before: int, after: int, schedule: Sequence[tuple[int, int]]) -> bool:
    """Whether a snapshot falls between two steps; the schedule is (up to this step, every so many steps)."""
    every = next((e for limit, e in schedule if after <= limit), schedule[-1][1])
    return before // every != after // every


def seconds() -> float:
    return time.monotonic() - START


def status(learner: "Learner") -> str:
    return ", ".join(f"{k} {np.round(np.asarray(v), 2).tolist()}" for k, v in learner.metrics.items())


def about(algorithm: str, seed: int) -> dict[str, object]:
    """A deterministic policy acts with noise on its actions when data are made."""
    from importlib.metadata import version

    noise = {"exploration": EXPLORATION} if algorithm == "td3" else {}
    versions = {"mujoco": version("mujoco"), "gymnasium": version("gymnasium")}
    return {"algorithm": algorithm, "seed": seed, **noise, **versions}


def save(folder: Path, learner: "Learner", ladders: Sequence[Ladder]) -> None:
    """Writes beside the folder and swaps, so that a broken write leaves the old one."""
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    learner.save(fresh)
    write_ladders(fresh / "ladders.safetensors", ladders)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def write_candidates(folder: Path, ladders: Sequence[Ladder]) -> None:
    """Two files an environment: its best run, and the others, each with as many snapshots as fit."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, task in TASKS.items():
        mine = [ladder for ladder in ladders if ladder.environment == task.environment]
        mine = [x for x in (evaluated(ladder) for ladder in mine) if x.rungs]
        if not mine:
            continue
        mine.sort(key=best, reverse=True)
        write_ladders(folder / f"{name}-best.safetensors", [thinned(mine[0], BEST_FILE)])
        if len(mine) > 1:
            share = OTHERS_FILE // (len(mine) - 1)
            write_ladders(folder / f"{name}-others.safetensors", [thinned(ladder, share) for ladder in mine[1:]])


def evaluated(ladder: Ladder) -> Ladder:
    return Ladder(ladder.environment, ladder.kind, [r for r in ladder.rungs if r.mode], ladder.about)


def best(ladder: Ladder) -> float:
    """The mean of the three best snapshots' sampled returns, which one lucky evaluation does not decide."""
    return float(np.mean(sorted((np.mean(r.sampled) for r in ladder.rungs), reverse=True)[:3]))


def thinned(ladder: Ladder, budget: int) -> Ladder:
    """The snapshots that matter most: the best five, the way to medium level, then the rest, evenly spread."""
    size = sum(v.nbytes for v in ladder.rungs[0].arrays.values())
    room = max(1, (budget - 200_000) // size)
    rungs = ladder.rungs
    strongest = sorted(rungs, key=lambda r: np.mean(r.sampled), reverse=True)[:5]
    task = TASKS[NAMES[ladder.environment]]
    medium = next((r.step for r in rungs if task.score(r.sampled) >= task.medium), 0) * 1.5
    early = [r for r in rungs if r.step <= medium and r not in strongest]
    late = [r for r in rungs if r.step > medium and r not in strongest]
    kept = strongest[:room]
    kept += evenly(early, room - len(kept))
    kept += evenly(late, room - len(kept))
    return Ladder(ladder.environment, ladder.kind, sorted(kept, key=lambda r: r.step), ladder.about)


def evenly(rungs: Sequence[Rung], room: int) -> list[Rung]:
    """At most `room` of them, evenly."""
    if len(rungs) <= room:
        return list(rungs)
    return [rungs[i] for i in np.unique(np.linspace(0, len(rungs) - 1, max(0, room)).astype(int))]


def pick(options: argparse.Namespace) -> None:
    """Chooses, for each environment, the way of one run to a medium policy, and the best expert of any run.

    Candidates are those whose few episodes during training come near. They play again, by samples, as they will when
    data are made: of an expert the mean less the deviation counts, of a medium how far mean and deviation are from
    D4RL's. The chosen two play a third time, on other seeds; these returns are what the ladder's file records.
    """
    ladders = [ladder for file in options.files for ladder in read_ladders(file)]
    with ProcessPoolExecutor(options.workers) as pool:
        for name, task in TASKS.items():
            mine = [(x, r) for x in ladders if x.environment == task.environment for r in x.rungs]
            if mine:
                pick_one(name, mine, pool, options)


def pick_one(
    name: str, mine: Sequence[tuple[Ladder, Rung]], pool: ProcessPoolExecutor, options: argparse.Namespace
) -> None:
    task = TASKS[name]

    def again(pairs: Sequence[tuple[Ladder, Rung]], seed: int) -> list[tuple[float, float]]:
        """Mean and deviation of the scores of sampled episodes."""
        jobs = [
            pool.submit(sampled_returns, x.environment, x.kind, r.policy(), options.episodes, seed + i)
            for i, (x, r) in enumerate(pairs)
        ]
        results: list[tuple[float, float]] = []
        for (ladder, rung), job in zip(pairs, jobs, strict=True):
            rung.sampled = job.result().tolist()
            results.append((task.score(rung.sampled), task.spread(rung.sampled)))
            print(f"  step {rung.step:8} of seed {ladder.about['seed']}: {results[-1][0]:5.1f} ± {results[-1][1]:4.1f}")
        return results

    print(f"{name}, candidates for the expert")
    strong = sorted(mine, key=lambda pair: np.mean(pair[1].sampled), reverse=True)[:8]
    sure = [mean - deviation for mean, deviation in again(strong, 1000)]
    expert_ladder, expert = strong[int(np.argmax(sure))]

    print(f"{name}, candidates for the medium policy", flush=True)
    long_enough = [(x, r) for x, r in mine if r.step >= REPLAY_SIZES[name] / 2.5]
    near = sorted(long_enough, key=lambda pair: abs(task.score(pair[1].sampled) - task.medium))[:12]
    off = [abs(mean - task.medium) + abs(deviation - task.medium_spread) / 2 for mean, deviation in again(near, 2000)]
    medium_ladder, medium = near[int(np.argmin(off))]

    print(f"{name}, expert and medium on other seeds", flush=True)
    again([(expert_ladder, expert), (medium_ladder, medium)], 3000)
    way = [r for r in medium_ladder.rungs if r.step < medium.step]
    size = sum(v.nbytes for v in medium.arrays.values())
    algorithm = str(medium_ladder.about["algorithm"])
    rungs = [*evenly(way, SHIPPED_FILE[algorithm] // size - 2), medium, expert]
    about = {
        **medium_ladder.about,
        "medium": len(rungs) - 2,
        "expert": len(rungs) - 1,
        "expert_seed": expert_ladder.about["seed"],
    }
    path = options.out / f"{name}{'-td3' if algorithm == 'td3' else ''}.safetensors"
    write_ladders(path, [Ladder(task.environment, medium_ladder.kind, rungs, about)])

    below = "" if task.score(expert.sampled) >= task.expert else f"; the expert is below {task.expert}"
    print(f"{name}: {len(rungs)} policies, {path.stat().st_size / 1e6:.1f} MB{below}", flush=True)


def demo(options: argparse.Namespace) -> None:
    """A small mixture like a replay buffer: uniform actions, then the way to the medium policy.

    Policies that score below 20 and those above get shares of the steps of their own, spread evenly over them:
    otherwise nearly all episodes would be falls.
    """
    ladder = read_ladders(shipped("hopper"))[0]
    task, lanes = TASKS["hopper"], 8
    way = ladder.rungs[: int(ladder.about["medium"]) + 1]
    able = [task.score(rung.sampled) > 20 for rung in way]
    share = {True: options.able / sum(able), False: (0.98 - options.able) / (len(way) - sum(able))}
    shares = np.array([0.02, *(share[flag] for flag in able)])
    bounds = np.round(np.cumsum([0.0, *shares]) * options.size / lanes).astype(int)
    stages = [(None if i == 0 else i - 1, int(n)) for i, n in enumerate(np.diff(bounds))]
    columns = make_shard(Shard(str(shipped("hopper")), stages, False, lanes, (options.seed, 99)))
    about = {"name": "hopper-demo", "kind": "embedded", "task": "hopper-demo"}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **columns, **{k: np.array(v) for k, v in about.items()})
    write_atomic(options.out, file.getvalue())
    data = Dataset(*(columns[name] for name in ("observations", "actions", "rewards", "terminals", "timeouts")))
    scores = 100 * (data.returns - task.lowest) / (task.highest - task.lowest)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {data}, score {scores.mean():.1f}")
    print("deciles of the episodes' scores", np.percentile(scores, range(0, 101, 10)).round(1).tolist())


if __name__ == "__main__":
    main()
