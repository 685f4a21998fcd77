"""Faults on purpose: a training is killed, or meets a full disk, again and again; it must end at the bits of an
unbroken one. Says what was tried; exit 1 if anything was lost. What is random comes from a seed, which a failure names.

    python -m tests.torture                                            # all: `make torture`
    python -m tests.torture --kills 4 --only kills

Every training is a process forked from this one, which has imported everything and started nothing: a fork costs
milliseconds where a fresh interpreter costs seconds.
"""

import argparse
import errno
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

METHOD = "sbac-no-w"
"""Has several phases, each small."""
PATIENCE = 600.0
"""Seconds after which a process counts as hung."""
EVENTS = ("before rename", "after rename", "inside a write", "before a log", "after a log", "before an evaluation")


@dataclass
class Ended:
    code: int
    """The exit code; negative: the signal that killed it."""
    text: str


def run(arguments: list[str], folder: Path, before: Callable[[], None] = lambda: None) -> Ended:
    """A command of sbac in a forked process that `before` has prepared."""

    def work() -> int:
        from sbac import cli

        before()
        return cli.main(arguments)

    ended = forked(work, folder / "output.txt")
    return Ended(ended.code, ended.text[-300:])


def forked(work: Callable[[], int], out: Path, patience: float = PATIENCE) -> Ended:
    """`work` in a forked process, its output in a file; one that hangs is killed: code 999."""
    child = os.fork()
    if not child:
        _work(work, out)
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return Ended(os.waitstatus_to_exitcode(status), out.read_text(errors="replace"))
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Ended(999, out.read_text(errors="replace"))


def _work(work: Callable[[], int], out: Path) -> NoReturn:
    """The work of this process, which ends with it."""
    code = 1
    try:
        with out.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@dataclass
class Torture:
    """A short training, and what came of breaking it."""

    folder: Path
    seed: int
    method: str
    tried: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    whole: dict[bool, dict[str, bytes]] = field(default_factory=dict[bool, dict[str, bytes]])

    def train(self, out: Path, watched: bool, before: Callable[[], None] = lambda: None) -> Ended:
        """`watched`: its policies are evaluated meanwhile."""
        words = ["train", str(self.folder / "log.npz"), "--algorithm", self.method, "--seeds", "2", "--steps", "120"]
        words += ["--preset", "paper" if self.method == METHOD else "quick", "--hidden", "8", "--batch-size", "8"]
        words += ["--checkpoint-seconds", "0", "--resume", "--out", str(out)]
        how = ["--env", "Pendulum-v1", "--episodes", "1", "--workers", "1", "--evaluate-every", "40"]
        return run([*words, *(how if watched else ["--no-evaluate"])], self.folder, before)

    def expect(self, holds: bool, failure: str) -> None:
        if not holds:
            self.failures.append(failure)
            print(f"FAILED seed {self.seed}, {failure}", flush=True)

    def unbroken(self, watched: bool) -> dict[str, bytes]:
        if watched not in self.whole:
            ended = self.train(self.folder / f"whole-{watched}", watched)
            self.expect(ended.code == 0, f"an unbroken run: {ended}")
            self.whole[watched] = contents(self.folder / f"whole-{watched}")
        return self.whole[watched]

    def loads(self, out: Path, where: str) -> None:
        """At any moment a run's folder loads, or holds no run yet."""
        from sbac.errors import UserError
        from sbac.runs import Run

        try:
            Run.load(out)
        except UserError as error:
            self.expect(not (out / "config.json").exists(), f"{where}: the folder does not load: {error}")

    def kills(self, count: int) -> None:
        """Kills at random events, in a row, until the training is through. Every second training is watched."""
        rng, number = np.random.default_rng(self.seed), 0
        while self.tried.total() < count:
            watched, out, left = number % 2 == 1, self.folder / f"broken-{number}", min(40, count - self.tried.total())
            ended = Ended(-signal.SIGKILL, "")
            while ended.code != 0 and left:
                event, left = str(rng.choice(EVENTS if watched else EVENTS[:-1])), left - 1
                at = int(rng.integers(1, 5 if event == EVENTS[-1] else 30))  # there are few evaluations
                where = f"run {number}, kill {self.tried.total()} {event} {at}"
                ended = self.train(out, watched, kill_at(event, at))
                self.loads(out, where)
                self.tried[event] += ended.code != 0
                self.expect(ended.code in (0, -signal.SIGKILL), f"{where}: {ended}")
            self.same(self.train(out, watched) if ended.code else ended, out, watched, f"run {number}")
            shutil.rmtree(out)
            number += 1

    def full_disk(self, count: int) -> None:
        """Writes fail from a random one on; with space, the run goes on to the same bits."""
        rng, out = np.random.default_rng(self.seed), self.folder / "full"
        for number in range(count):
            ended = self.train(out, False, full_from(int(rng.integers(1, 40))))
            clean = ended.code == 2 and "Traceback" not in ended.text and "error: " in ended.text
            self.expect(clean or ended.code == 0, f"full disk {number}: {ended}")
            self.loads(out, f"full disk {number}")
            self.tried["full disk"] += 1
        self.same(self.train(out, False), out, False, "full disk")

    def same(self, ended: Ended, out: Path, watched: bool, where: str) -> None:
        same = ended.code == 0 and contents(out) == self.unbroken(watched)
        self.expect(same, f"{where}: other bits than an unbroken run, or none: {ended}")
        left = [path.name for path in out.rglob("*") if ".tmp" in path.name]
        self.expect(not left, f"{where}: left behind: {left}")


def contents(out: Path) -> dict[str, bytes]:
    """What two runs of the same training must agree in, to the last bit."""
    kept = {path.name: path.read_bytes() for path in sorted((out / "policies").glob("*.safetensors"))}
    kept["metrics.jsonl"] = (out / "metrics.jsonl").read_bytes()
    if (out / "evaluations.jsonl").exists():
        kept["evaluations.jsonl"] = b"\n".join(sorted((out / "evaluations.jsonl").read_bytes().splitlines()))
    return kept


def kill_at(event: str, number: int) -> Callable[[], None]:
    """Kills the process at the n-th event."""

    def before() -> None:
        from sbac.training import evaluations, writer

        left = [number]

        def due() -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def surround(holder: Any, name: str) -> None:
            real = getattr(holder, name)

            def called(*arguments: Any, **options: Any) -> Any:
                if event.startswith("before"):
                    due()
                answer = real(*arguments, **options)
                if event.startswith("after"):
                    due()
                return answer

            setattr(holder, name, called)

        def cut(handle: int) -> None:
            if left[0] == 1:
                os.ftruncate(handle, os.fstat(handle).st_size // 2)  # what was not yet on its way to the disk
            due()

        if event == "inside a write":
            os.fsync = cut
        elif event.endswith("rename"):
            surround(os, "replace")
        elif event.endswith("log"):
            surround(writer.Writer, "log")
        else:  # its snapshot is on disk
            surround(evaluations.Evaluations, "_start")

    return before


def full_from(number: int) -> Callable[[], None]:
    def before() -> None:
        left, real = [number], os.fsync

        def sync(handle: int) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        os.fsync = sync

    return before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--full", type=int, default=10, help="times that the disk is full")
    parser.add_argument("--method", default=METHOD, help="what is trained and killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("kills", "full"), help="one kind of fault (default: both)")
    args = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    with tempfile.TemporaryDirectory(prefix="sbac-torture-") as scratch:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{scratch}/xla")
        import sbac.training.train  # noqa: F401 (imported once, for all the processes that are forked)
        from sbac.cli import train  # noqa: F401
        from tests.small import make_log

        make_log(400, 50).save(Path(scratch) / "log.npz")
        torture = Torture(Path(scratch), args.seed, args.method)
        if args.only != "full":
            torture.kills(args.kills)
        if args.only != "kills":
            torture.full_disk(args.full)
    tried = ", ".join(f"{what} {count}" for what, count in sorted(torture.tried.items()))
    print(f"seed {args.seed}, {torture.tried.total()} faults ({tried}): {len(torture.failures)} failed")
    return 1 if torture.failures else 0


if __name__ == "__main__":
    sys.exit(main())
