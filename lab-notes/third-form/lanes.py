"""Trains, plays and judges many logs on one GPU: lanes of commands side by side, each of which waits for what it needs.

python lab-notes/third-form/lanes.py OUT SCRATCH --ladders walker2d halfcheetah hopper-td3
python lab-notes/third-form/lanes.py OUT SCRATCH --logs hopper-medium-replay-made --seeds 403 404 405 406
python lab-notes/third-form/lanes.py OUT SCRATCH --ladders walker2d-td3 halfcheetah-td3 --jobs iql td3bc rebrac

--ladders: as they are named; each has three logs. --logs: single logs; those of one shape train in one program.
--jobs: what is trained (default: SBAC's list). --former: the package of commit a089f01, whose rule then judges all
policies as well (`lab-notes/judge/former.py`). OUT/queue has what each lane printed. What is there is not done again,
so the same command goes on after a stop. A lane whose command fails stops, and so do those that wait when nothing runs
any more; the exit code is then 1.

Without a display: MUJOCO_GL=disabled. Gymnasium imports glfw and imageio even so.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from threading import Lock, Thread
from typing import IO, NamedTuple

HERE = Path(__file__).parent
TIERS = ("medium", "medium-replay", "medium-expert")
PATIENCE = 5
"""Seconds without any command after which what a lane waits for will not come."""
LIST = ["mu", "mu-free", "pi", "expectile"]
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Or the first program takes three quarters of the GPU's memory, and the second one dies."""


def logs_of(ladder: str) -> list[str]:
    body, _, second = ladder.partition("-")
    return [f"{body}-{tier}{second and '-' + second}-made" for tier in TIERS]


def is_hopper(log: str) -> bool:
    """The two other bodies are of one shape, so that they can share a program."""
    return log.startswith("hopper")


class Step(NamedTuple):
    """A command, and the files that it waits for."""

    command: list[str]
    needs: list[Path]
    variables: Mapping[str, str] = {}


class Lanes:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.out, self.scratch, self.former, self.small = asked.out, asked.scratch, asked.former, asked.small
        self.ladders, self.jobs = list(map(logs_of, asked.ladders)), list(asked.jobs)
        self.groups = [list(group) for _, group in groupby(sorted(asked.logs, key=is_hopper), key=is_hopper)]
        self.logs = [log for group in [*self.ladders, *self.groups] for log in group]
        self.seeds = list(map(str, asked.seeds))
        self.effort = "tiny" if self.small else "full"
        self.running, self.failed, self.counting = 0, False, Lock()

    def data(self, logs: Sequence[str]) -> Step:
        return self.policies("make", logs, [])._replace(needs=[])

    def policies(self, stage: str, logs: Sequence[str], needs: Sequence[Path], *options: str) -> Step:
        small = ["--small"] if self.small else []
        command = [str(HERE / "policies.py"), stage, str(self.out), str(self.scratch), "--logs", *logs, *small]
        return Step([sys.executable, *command, *options], [*needs, *self.made(logs)])

    def made(self, logs: Sequence[str]) -> list[Path]:
        return [self.scratch / "data" / f"{log}.npz" for log in logs]

    def train(self, logs: Sequence[str]) -> Step:
        return self.policies("train", logs, [], "--seeds", *self.seeds, "--jobs", *self.jobs)

    def finished(self, log: str) -> list[Path]:
        """What says that all policies of a log are there."""
        return [self.out / log / f"{job}.json" for job in self.jobs]

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
        logs = self.logs
        return {
            "data": [self.data(group) for group in [*self.ladders, *self.groups]],
            **{f"train-{i}": [self.train(part) for part in lane] for i, lane in enumerate(self.halves())},
            "train-logs": [self.train(group) for group in self.groups],
            "play": list(map(self.play, logs)),
            "play-clones": list(map(self.play_clone, logs)),
            **{f"judge-{i}": [self.judge(log) for log in logs[i::3]] for i in range(3)},
            **({f"before-{i}": [self.judge_before(log) for log in logs[i::2]] for i in (0, 1)} if self.former else {}),
        }

    def halves(self) -> list[list[list[str]]]:
        """The ladders on two lanes."""
        if not self.ladders:
            return []
        *whole, last = self.ladders
        lanes = [whole[0::2], whole[1::2]]
        if len(whole) % 2:  # the second lane has one ladder less
            lanes[1].append(last)
        else:
            lanes[0].append(last[2:])
            lanes[1].append(last[:2])
        return lanes

    def run(self) -> bool:
        """Whether all went well."""
        (self.out / "queue").mkdir(parents=True, exist_ok=True)
        (self.scratch / "data").mkdir(parents=True, exist_ok=True)
        (self.out / "data").unlink(missing_ok=True)
        (self.out / "data").symlink_to((self.scratch / "data").resolve())
        threads = [Thread(target=self.lane, args=lane) for lane in self.lanes().items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return not self.failed

    def lane(self, name: str, steps: Sequence[Step]) -> None:
        with (self.out / "queue" / f"{name}.log").open("a") as log:
            for step in steps:
                if not self.comes(step.needs):
                    print(f"stopped: {[str(path) for path in step.needs if not path.exists()]} will not come", file=log)
                    self.failed = True
                    return
                began, words = time.monotonic(), " ".join(step.command[1:])
                code = self.code_of(step, log)
                print(f"[{time.monotonic() - began:.0f} s, exit code {code}] {words}", file=log, flush=True)
                if code != 0:
                    self.failed = True
                    return

    def comes(self, needs: Sequence[Path]) -> bool:
        """Waits until all is there; False if nothing runs that could bring it."""
        idle = 0
        while not all(path.exists() for path in needs):
            time.sleep(1.0)
            idle = 0 if self.running else idle + 1
            if idle > PATIENCE:
                return False
        return True

    def code_of(self, step: Step, log: IO[str]) -> int:
        with self.counting:
            self.running += 1
        try:
            environment = {**SHARED, **os.environ, **step.variables}
            return subprocess.run(step.command, stdout=log, stderr=log, env=environment, check=False).returncode
        finally:
            with self.counting:
                self.running -= 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--ladders", nargs="+", default=[])
    parser.add_argument("--logs", nargs="+", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[400, 401, 402])
    parser.add_argument("--jobs", nargs="+", default=LIST)
    parser.add_argument("--former", type=Path)
    parser.add_argument("--small", action="store_true", help="a trial of the script")
    sys.exit(0 if Lanes(parser.parse_args()).run() else 1)
