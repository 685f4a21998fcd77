"""Trains, plays and judges many logs on one GPU: lanes of commands side by side, each of which waits for what it needs.

python lab-notes/third-form/lanes.py OUT SCRATCH --ladders walker2d halfcheetah hopper-td3 [--rivals LOG ...]

--ladders: as they are named; each has three logs. --rivals: the logs on which rivals are trained too. --former: the
package of commit a089f01, whose rule then judges all policies as well (`lab-notes/judge/former.py`). OUT/queue has what
each lane printed. What is there is not done again, so the same command goes on after a stop.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import NamedTuple

HERE = Path(__file__).parent
TIERS = ("medium", "medium-replay", "medium-expert")
LIST, RIVALS = ["mu", "mu-free", "pi", "expectile"], ["iql", "td3bc", "rebrac"]


def logs_of(ladder: str) -> list[str]:
    """Of one body, so that they can share a program."""
    body, _, second = ladder.partition("-")
    return [f"{body}-{tier}{second and '-' + second}-made" for tier in TIERS]


class Step(NamedTuple):
    """A command, and the files that it waits for."""

    command: list[str]
    needs: list[Path]
    variables: Mapping[str, str] = {}


class Lanes:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.out, self.scratch, self.former, self.small = asked.out, asked.scratch, asked.former, asked.small
        self.ladders, self.rivals = list(map(logs_of, asked.ladders)), list(asked.rivals)
        self.effort = "tiny" if self.small else "full"

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
        return [self.out / log / f"{job}.json" for job in [*LIST, *(RIVALS if log in self.rivals else [])]]

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
        path = os.pathsep.join([str(self.former), os.environ.get("PYTHONPATH", "")])
        return Step([sys.executable, *command], [self.judged(log)], {"PYTHONPATH": path})

    def lanes(self) -> dict[str, list[Step]]:
        logs = [log for ladder in self.ladders for log in ladder]
        *whole, last = self.ladders
        lanes = [whole[0::2], whole[1::2]]
        if len(whole) % 2:  # the second lane has one ladder less
            lanes[1].append(last)
        else:
            lanes[0].append(last[2:])
            lanes[1].append(last[:2])
        alike = [list(group) for _, group in groupby(self.rivals, key=lambda log: log.split("-")[0])]
        return {
            "data": [self.data(ladder) for ladder in self.ladders],
            **{f"train-{i}": [self.train(part, LIST) for part in lane] for i, lane in enumerate(lanes)},
            "rivals": [self.train(group, RIVALS) for group in alike],
            "play": list(map(self.play, logs)),
            "play-clones": list(map(self.play_clone, logs)),
            **{f"judge-{tier}": [self.judge(log) for log in logs[i::3]] for i, tier in enumerate(TIERS)},
            **({f"before-{i}": [self.judge_before(log) for log in logs[i::2]] for i in (0, 1)} if self.former else {}),
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
    parser.add_argument("--ladders", nargs="+", required=True)
    parser.add_argument("--rivals", nargs="+", default=[])
    parser.add_argument("--former", type=Path)
    parser.add_argument("--small", action="store_true", help="a trial of the script")
    Lanes(parser.parse_args()).run()
