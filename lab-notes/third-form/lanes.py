"""Trains, plays and judges many logs on one GPU: lanes of commands side by side, each of which waits for what it needs.

python lab-notes/third-form/lanes.py OUT SCRATCH FORMER [--small]

FORMER is the package of commit a089f01, for the rule before (`lab-notes/judge/former.py`). OUT/queue has what each
lane printed. What is there is not done again, so the same command goes on after a stop.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import NamedTuple

HERE = Path(__file__).parent
TIERS = ("medium", "medium-replay", "medium-expert")
HOPPER, WALKER, CHEETAH = ([f"{body}-{tier}-made" for tier in TIERS] for body in ("hopper", "walker2d", "halfcheetah"))
FOUR = ["hopper-medium-made", "hopper-medium-replay-made", "walker2d-medium-made", "halfcheetah-medium-expert-made"]
"""Where rivals are trained too, and the rule before judges."""
LIST, RIVALS = ["mu", "mu-free", "pi", "expectile"], ["iql", "td3bc", "rebrac"]


class Step(NamedTuple):
    """A command, and the files that it waits for."""

    command: list[str]
    needs: list[Path]
    variables: Mapping[str, str] = {}


class Lanes:
    def __init__(self, out: Path, scratch: Path, former: Path, small: bool) -> None:
        self.out, self.scratch, self.former, self.small = out, scratch, former, small
        self.effort = "tiny" if small else "full"

    def data(self, logs: Sequence[str]) -> Step:
        return self.policies("make", logs, [])._replace(needs=[])

    def policies(self, stage: str, logs: Sequence[str], needs: Sequence[Path], *options: str) -> Step:
        small = ["--small"] if self.small else []
        command = [str(HERE / "policies.py"), stage, str(self.out), str(self.scratch), "--logs", *logs, *small]
        return Step([sys.executable, *command, *options], [*needs, *self.made(logs)])

    def made(self, logs: Sequence[str]) -> list[Path]:
        return [self.scratch / "data" / f"{log}.npz" for log in logs]

    def train(self, logs: Sequence[str], jobs: Sequence[str]) -> Step:
        return self.policies("train", logs, [], "--jobs", *jobs)

    def finished(self, log: str) -> list[Path]:
        """What says that all policies of a log are there."""
        return [self.out / log / f"{job}.json" for job in [*LIST, *(RIVALS if log in FOUR else [])]]

    def judge(self, log: str) -> Step:
        return self.policies("judge", [log], self.finished(log), "--effort", self.effort)

    def play(self, log: str) -> Step:
        episodes = "2" if self.small else "50"
        return self.policies("play", [log], self.finished(log), "--workers", "6", "--episodes", episodes)

    def play_clone(self, log: str) -> Step:
        return self.play(log)._replace(needs=[self.judged(log)])

    def judged(self, log: str) -> Path:
        return self.out / log / f"judged-{self.effort}.json"

    def judge_before(self, log: str) -> Step:
        """By the rule before, after the rule as it is."""
        command = [str(HERE.parent / "judge" / "former.py"), str(self.out), self.effort, log]
        return Step(
            [sys.executable, *command], [self.judged(log)], {"PYTHONPATH": f"{self.former}:{os.environ['PYTHONPATH']}"}
        )

    def lanes(self) -> dict[str, list[Step]]:
        judged = [*HOPPER, *WALKER, *CHEETAH]
        return {
            "data": [self.data(logs) for logs in (HOPPER, WALKER, CHEETAH)],
            "first": [self.train(HOPPER, LIST), self.train(CHEETAH[2:], LIST)],
            "second": [self.train(WALKER, LIST), self.train(CHEETAH[:2], LIST)],
            "rivals": [self.train(logs, RIVALS) for logs in (FOUR[:2], FOUR[2:3], FOUR[3:])],
            "play": [*map(self.play, judged), *map(self.play_clone, judged)],
            **{f"judge-{tier}": [self.judge(log) for log in judged[i::3]] for i, tier in enumerate(TIERS)},
            "before": [self.judge_before(log) for log in FOUR],
        }

    def run(self) -> None:
        (self.out / "queue").mkdir(parents=True, exist_ok=True)
        (self.scratch / "data").mkdir(parents=True, exist_ok=True)
        (self.out / "data").unlink(missing_ok=True)
        (self.out / "data").symlink_to((self.scratch / "data").resolve())
        threads = [Thread(target=self.lane, args=lane) for lane in self.lanes().items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def lane(self, name: str, steps: Sequence[Step]) -> None:
        began = time.monotonic()
        with (self.out / "queue" / f"{name}.log").open("a") as log:
            for step in steps:
                while not all(path.exists() for path in step.needs):
                    time.sleep(1.0)
                began = time.monotonic()
                environment = {**os.environ, **step.variables}
                done = subprocess.run(step.command, stdout=log, stderr=log, env=environment, check=False)
                words = " ".join(step.command[1:])
                print(f"[{time.monotonic() - began:.0f} s, exit code {done.returncode}] {words}", file=log, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("former", type=Path)
    parser.add_argument("--small", action="store_true", help="a trial of the script")
    args = parser.parse_args()
    Lanes(args.out, args.scratch, args.former, args.small).run()
