"""Faults on purpose: kills, full disks, dead workers, damaged files. A table at the end; exit 1 if anything was lost.

Every training is a process forked from this one, which has imported everything and started nothing: a fork costs
milliseconds where a fresh interpreter costs seconds. What is random comes from a seed that is printed beside a failure.

    python tests/torture/torture.py                  # all of it: `make torture`
    python tests/torture/torture.py --kills 4 --mutations 300 --only kills mutations
"""

import argparse
import contextlib
import errno
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 120
PATIENCE = 300.0
"""Seconds after which a process counts as hung."""
MEMORY = 3 * 2**30
"""The most bytes that reading a damaged file may take, the interpreter included."""
WORKER = "sbac.evaluation.worker"


@dataclass
class Outcome:
    """What came of one kind of fault."""

    name: str
    tried: int = 0
    failures: list[str] = field(default_factory=list[str])
    notes: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0

    def expect(self, holds: bool, failure: str) -> None:
        if not holds:
            self.failures.append(failure)
            print(f"FAILED {self.name}: {failure}", flush=True)

    def note(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1


# --- Processes --------------------------------------------------------------------------------------------------------


@dataclass
class Ended:
    code: int
    """The exit code; negative: the signal that killed it."""
    text: str


def start(work: Callable[[], int], out: Path) -> int:
    """Runs `work` in a forked process whose output goes to a file; its id."""
    child = os.fork()
    if child:
        return child
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
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(child: int, out: Path, patience: float = PATIENCE) -> Ended:
    """Waits for a process; one that hangs is killed and counts as code 999."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return Ended(os.waitstatus_to_exitcode(status), out.read_text(errors="replace"))
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Ended(999, out.read_text(errors="replace"))


def command(arguments: list[str], before: Callable[[], None] = lambda: None) -> Callable[[], int]:
    """A command of sbac, after `before` has prepared the process."""

    def work() -> int:
        from sbac import cli

        before()
        return cli.main(arguments)

    return work


def run(arguments: list[str], folder: Path, before: Callable[[], None] = lambda: None) -> Ended:
    out = folder / "output.txt"
    return wait(start(command(arguments, before), out), out)


def is_clean(ended: Ended) -> bool:
    """Whether a refusal is one line, without a traceback."""
    return ended.code == 2 and "Traceback" not in ended.text and "error: " in ended.text


# --- A training -------------------------------------------------------------------------------------------------------


def make_log(path: Path, rows: int = 400, seed: int = 0) -> Any:
    from sbac.data import Dataset

    rng = np.random.default_rng(seed)
    ends = np.zeros(rows, bool)
    ends[49::50] = True
    data = Dataset(
        observations=rng.normal(size=(rows, 3)),
        actions=rng.uniform(-2, 2, (rows, 1)),
        rewards=rng.normal(size=rows),
        terminals=np.zeros(rows, bool),
        timeouts=ends,
        action_low=[-2.0],
        action_high=[2.0],
    )
    data.save(path)
    return data


def training(log: Path, out: Path, watched: bool) -> list[str]:
    words = ["train", str(log), "--algorithm", "sbac-no-w", "--seeds", "2", "--steps", str(STEPS), "--hidden", "8"]
    words += ["--batch-size", "8", "--checkpoint-seconds", "0", "--resume", "--out", str(out)]
    how = ["--env", "Pendulum-v1", "--episodes", "1", "--workers", "1", "--evaluate-every", "40"]
    return [*words, *(how if watched else ["--no-evaluate"])]


def contents(out: Path) -> dict[str, bytes]:
    """What two runs of the same training must agree in, to the last bit."""
    kept = {path.name: path.read_bytes() for path in sorted((out / "policies").glob("*.safetensors"))}
    rows = (out / "metrics.jsonl").read_bytes().splitlines()
    kept["metrics.jsonl"] = b"\n".join(rows)
    if (out / "evaluations.jsonl").exists():
        kept["evaluations.jsonl"] = b"\n".join(sorted((out / "evaluations.jsonl").read_bytes().splitlines()))
    return kept


def check_loads(out: Path, outcome: Outcome, where: str) -> None:
    """At any moment a run's folder loads, or holds no run yet."""
    from sbac.errors import UserError
    from sbac.runs import Run

    if not (out / "config.json").exists():
        return
    try:
        Run.load(out)
    except UserError as error:
        outcome.expect(False, f"{where}: the folder does not load: {error}")


def kill_at(event: str, number: int) -> Callable[[], None]:
    """Kills the process at the n-th event: before or after a file is renamed, in the middle of a write, at a log."""

    def before() -> None:
        from sbac.training import writer

        left = [number]

        def due() -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        if event in ("before rename", "after rename"):
            real_replace = os.replace

            def replace(*arguments: Any, **options: Any) -> None:
                if event == "before rename":
                    due()
                real_replace(*arguments, **options)
                if event == "after rename":
                    due()

            os.replace = replace
        elif event == "inside a write":
            real_sync = os.fsync

            def sync(handle: int) -> None:
                size = os.fstat(handle).st_size
                if left[0] == 1:
                    os.ftruncate(handle, size // 2)  # what was not yet on its way to the disk
                due()
                real_sync(handle)

            os.fsync = sync
        else:
            real_log = writer.Writer.log

            def log(self: Any, *arguments: Any) -> None:
                if event == "before a log":
                    due()
                real_log(self, *arguments)
                if event == "after a log":
                    due()

            setattr(writer.Writer, "log", log)  # noqa: B010 (a type checker forbids the plain form)

    return before


EVENTS = ("before rename", "after rename", "inside a write", "before a log", "after a log")


def kills(folder: Path, count: int, seed: int) -> Outcome:
    """Kills at random events, in a row, until the training is through; it must end at the bits of an unbroken one."""
    outcome = Outcome("SIGKILL, then --resume")
    rng = np.random.default_rng(seed)
    log = folder / "log.npz"
    make_log(log)
    wholes: dict[bool, dict[str, bytes]] = {}
    number = 0
    while outcome.tried < count:
        watched = number % 4 == 3
        if watched not in wholes:
            whole = folder / f"whole-{watched}"
            ended = run(training(log, whole, watched), folder)
            outcome.expect(ended.code == 0, f"an unbroken run ended with {ended.code}: {ended.text[-300:]}")
            wholes[watched] = contents(whole)
        out = folder / f"broken-{number}"
        for _ in range(40):
            event, at = EVENTS[rng.integers(len(EVENTS))], int(rng.integers(1, 30))
            where = f"seed {seed}, run {number}, kill {outcome.tried} {event} {at}"
            ended = run(training(log, out, watched), folder, kill_at(event, at))
            check_loads(out, outcome, where)
            if ended.code == 0:
                break
            outcome.tried += 1
            outcome.note(event)
            outcome.expect(ended.code == -signal.SIGKILL, f"{where}: ended with {ended.code}: {ended.text[-300:]}")
        else:
            ended = run(training(log, out, watched), folder)
        outcome.expect(ended.code == 0, f"seed {seed}, run {number}: never ended: {ended.text[-300:]}")
        if ended.code == 0:
            outcome.expect(contents(out) == wholes[watched], f"seed {seed}, run {number}: other bits after kills")
        left = [path.name for path in out.rglob("*") if ".tmp" in path.name]
        outcome.expect(not left, f"seed {seed}, run {number}: left behind: {left}")
        shutil.rmtree(out)
        number += 1
    return outcome


def full_disk(folder: Path, count: int, seed: int) -> Outcome:
    """Writes fail with ENOSPC from the n-th on; later, with space, the run goes on to the same bits."""
    outcome = Outcome("disk full, then --resume")
    rng = np.random.default_rng(seed)
    log, whole, out = folder / "log.npz", folder / "whole", folder / "full"
    make_log(log)
    run(training(log, whole, False), folder)

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

    for i in range(count):
        ended = run(training(log, out, False), folder, full_from(int(rng.integers(1, 40))))
        outcome.tried += 1
        where = f"seed {seed}, time {i}"
        outcome.expect(is_clean(ended) or ended.code == 0, f"{where}: {ended.code}, {ended.text[-300:]}")
        check_loads(out, outcome, where)
    ended = run(training(log, out, False), folder)
    outcome.expect(ended.code == 0 and contents(out) == contents(whole), f"other bits: {ended.text[-300:]}")
    return outcome


# --- Neighbours -------------------------------------------------------------------------------------------------------


def children(parent: int, module: str) -> list[int]:
    """The processes of a module that a process has started."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            owner = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if owner == parent and module.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def until(ready: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Waits for something to be true; what it was, or None."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := ready():
            return found
        time.sleep(0.02)
    return None


def dead_worker(folder: Path) -> Outcome:
    """An evaluation worker is killed: it is replaced, and the run ends as if nothing had been."""
    outcome = Outcome("evaluation worker killed", 1)
    log, out, text = folder / "log.npz", folder / "run", folder / "output.txt"
    make_log(log)
    child = start(command(training(log, out, True)), text)
    workers = until(lambda: children(child, WORKER))
    outcome.expect(bool(workers), "no worker was seen")
    for worker in workers or []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    ended = wait(child, text)
    outcome.expect(ended.code == 0 and "Traceback" not in ended.text, f"{ended.code}: {ended.text[-300:]}")
    whole = folder / "whole"
    run(training(log, whole, True), folder)
    outcome.expect(contents(out) == contents(whole), "other evaluations than without the kill")
    return outcome


def dead_parent(folder: Path) -> Outcome:
    """The parent is killed: its workers are gone within five seconds."""
    outcome = Outcome("parent killed")
    log = folder / "log.npz"
    make_log(log)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        outcome.tried += 1
        out, text = folder / f"run-{number}", folder / "output.txt"
        child = start(command(training(log, out, True)), text)
        workers = until(lambda child=child: children(child, WORKER)) or []
        outcome.expect(bool(workers), f"signal {number}: no worker was seen")
        os.kill(child, number)
        ended = wait(child, text)
        outcome.expect("Traceback" not in ended.text, f"signal {number}: {ended.text[-300:]}")
        gone = until(lambda workers=workers: not any(is_alive(worker) for worker in workers), 5.0)
        outcome.expect(bool(gone), f"signal {number}: workers outlived their parent by five seconds")
    return outcome


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def two_at_once(folder: Path) -> Outcome:
    """A second process on a folder in use is refused; the first one ends as it would alone."""
    outcome = Outcome("two processes on one folder", 1)
    log, out, text = folder / "log.npz", folder / "run", folder / "first.txt"
    make_log(log)
    child = start(command(training(log, out, False), hold_after_first_log), text)
    until(lambda: (out / "metrics.jsonl").exists())
    second = run(training(log, out, False), folder)
    outcome.expect(is_clean(second) and "in use" in second.text, f"{second.code}: {second.text[-300:]}")
    first = wait(child, text)
    whole = folder / "whole"
    run(training(log, whole, False), folder)
    outcome.expect(first.code == 0 and contents(out) == contents(whole), f"{first.code}: {first.text[-300:]}")
    return outcome


def hold_after_first_log() -> None:
    """Training pauses after its first log, so that there is time for a second process."""
    from sbac.training import writer

    real = writer.Writer.log
    held: list[bool] = []

    def log(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        if not held:
            held.append(True)
            time.sleep(20.0)

    setattr(writer.Writer, "log", log)  # noqa: B010


def forbidden(folder: Path) -> Outcome:
    """A folder that an unprivileged user may not write, and a user without a home."""
    outcome = Outcome("folder that may not be written")
    if os.getuid() != 0:
        outcome.note("skipped: needs root")
        return outcome
    outcome.tried = 1
    log, closed = folder / "log.npz", folder / "closed"
    make_log(log)
    closed.mkdir()
    folder.chmod(0o755)
    closed.chmod(0o755)

    def nobody() -> None:
        os.environ["HOME"] = "/nonexistent"
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    ended = run(training(log, closed / "run", False), folder, nobody)
    outcome.expect(is_clean(ended), f"{ended.code}: {ended.text[-300:]}")
    outcome.expect(not any(closed.iterdir()), "something was written")
    return outcome


def clock_set_back(folder: Path) -> Outcome:
    """The clock goes back an hour at every look; nothing depends on it."""
    outcome = Outcome("clock set back", 1)
    log, out, whole = folder / "log.npz", folder / "run", folder / "whole"
    make_log(log)

    def back() -> None:
        real, hours = time.time, [0]

        def earlier() -> float:
            hours[0] += 1
            return real() - 3600.0 * hours[0]

        time.time = earlier

    ended = run(training(log, out, False), folder, back)
    run(training(log, whole, False), folder)
    outcome.expect(ended.code == 0 and contents(out) == contents(whole), f"{ended.code}: {ended.text[-300:]}")
    return outcome


# --- Damaged files ----------------------------------------------------------------------------------------------------


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with one to four damages: flipped bits, a stretch cut, doubled, zeroed, or replaced by noise."""
    bytes_ = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if not bytes_:
            break
        at, length = int(rng.integers(len(bytes_))), int(rng.integers(1, 64))
        kind = int(rng.integers(7))
        if kind == 0:
            bytes_[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del bytes_[at:]
        elif kind == 2:
            del bytes_[at : at + length]
        elif kind == 3:
            bytes_[at:at] = bytes_[at : at + length]
        elif kind == 4:
            bytes_[at : at + length] = bytes(length)
        elif kind == 5:
            bytes_[at : at + length] = rng.bytes(length)
        else:
            numbers = [b"-1", b"0", b"1e999", b"NaN", b"null", b"9" * 30, b'"', b"{", b"[]", b"true", b"\xff\xfe"]
            bytes_[at : at + int(rng.integers(4))] = numbers[int(rng.integers(len(numbers)))]
    return bytes(bytes_)


def specimens(folder: Path) -> Iterator[tuple[str, Path, Path, Callable[[], object]]]:
    """A kind of file, the file to damage, the folder it lies in, and what reads it."""
    import sbac
    from sbac.policy import Policy
    from sbac.results.cells import read_cell
    from sbac.runs import Run
    from sbac.training.checkpoint import Checkpoint

    log = folder / "log.npz"
    data = make_log(log, 120)
    yield "npz", log, folder, lambda: sbac.load(log)
    columns = {name: np.asarray(getattr(data, name)) for name in ("observations", "actions", "rewards")}
    columns |= {"terminals": data.terminals, "timeouts": data.timeouts}
    h5py = __import__("h5py")
    flat = folder / "log.hdf5"
    with h5py.File(flat, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip" if name == "observations" else None)
    yield "hdf5", flat, folder, lambda: sbac.load(flat, action_low=-2.0, action_high=2.0)
    yield "hdf5, streamed", flat, folder, lambda: sbac.stream(flat).survey
    npy = folder / "arrays"
    npy.mkdir()
    for name, column in columns.items():
        np.save(npy / f"{name}.npy", column, allow_pickle=False)
    yield "npy folder", npy / "observations.npy", npy, lambda: sbac.load(npy, action_low=-2.0, action_high=2.0)
    minari = folder / "minari"
    (minari / "data").mkdir(parents=True)
    (minari / "data" / "metadata.json").write_text('{"dataset_id": "own/log-v0", "total_episodes": 2}')
    with h5py.File(minari / "data" / "main_data.hdf5", "w") as file:
        for number in range(2):
            group = file.create_group(f"episode_{number}")
            group["observations"], group["actions"] = np.zeros((41, 3), np.float32), np.zeros((40, 1), np.float32)
            group["rewards"], group["terminations"] = np.zeros(40), np.zeros(40, bool)
            group["truncations"] = np.arange(40) == 39
    yield "Minari data", minari / "data" / "main_data.hdf5", minari, lambda: sbac.load(minari)
    yield "Minari metadata", minari / "data" / "metadata.json", minari, lambda: sbac.load(minari)
    try:
        pa, parquet = __import__("pyarrow"), __import__("pyarrow.parquet").parquet
    except ImportError:
        print("no pyarrow: Parquet and CSV are left out", flush=True)
    else:
        table = pa.table({name: list(c) if c.ndim == 2 else c for name, c in columns.items()})
        parquet.write_table(table, folder / "log.parquet", row_group_size=40)
        yield "parquet", folder / "log.parquet", folder, lambda: sbac.load(folder / "log.parquet")
        yield "parquet, streamed", folder / "log.parquet", folder, lambda: sbac.stream(folder / "log.parquet").survey
        text = "obs_0,obs_1,action_0,reward,terminal,timeout\n" + "0.5,1,0.25,1,0,0\n" * 20 + "0.5,1,0.25,1,1,0\n"
        (folder / "log.csv").write_text(text)
        yield "csv", folder / "log.csv", folder, lambda: sbac.load(folder / "log.csv")
    trained = folder / "run"
    ended = run(training(log, trained, True), folder)
    assert ended.code == 0, ended.text
    policy = next((trained / "policies").glob("*.safetensors"))
    yield "policy", policy, trained, lambda: Policy.load(policy)(np.zeros((2, 3), np.float32))
    for name in ("config.json", "metrics.jsonl", "evaluations.jsonl"):
        yield f"run: {name}", trained / name, trained, lambda: Run.load(trained)
    state = trained / "checkpoint" / "state-0.safetensors"
    yield "run: checkpoint", state, trained, lambda: Checkpoint.find(state, 2)
    cells = sorted((Path(__file__).parents[2] / "results" / "cells").rglob("*.json"), key=lambda p: p.stat().st_size)
    if cells:
        cell = folder / "cell.json"
        shutil.copy(cells[0], cell)
        yield "cell", cell, folder, lambda: read_cell(cell)


def mutations(folder: Path, count: int, seed: int) -> Outcome:
    """Damaged files are read, or refused with one line: no traceback, no crash, no hang, no memory over the limit."""
    outcome = Outcome("damaged files")
    kinds = list(specimens(folder))
    each = -(-count // len(kinds))
    for number, (kind, path, home, read) in enumerate(kinds):
        whole, done = path.read_bytes(), 0
        while done < each:
            result = folder / "result.txt"
            child = start(lambda d=done, n=number, p=path, w=whole, r=read: damage(p, w, r, seed, n, d, each), result)
            ended = wait(child, result)
            lines = [line for line in ended.text.splitlines() if line.startswith("@")]
            for line in lines:
                word, _, detail = line[1:].partition(" ")
                if word in ("read", "refused"):
                    outcome.note(word)
                elif word == "bad":
                    outcome.expect(False, f"{kind}: {detail}")
            passed = sum(line.startswith(("@read", "@refused", "@bad")) for line in lines)
            outcome.tried += passed
            done += passed
            if done < each:  # it crashed, hung or ran out of memory over this one
                where = f"seed {seed} {number} {done}"
                outcome.expect(False, f"{kind}: {where}: ended with {ended.code}: {ended.text[-300:]}")
                outcome.tried, done = outcome.tried + 1, done + 1
        path.write_bytes(whole)
        assert home.exists()
    return outcome


def damage(path: Path, whole: bytes, read: Callable[[], object], seed: int, number: int, first: int, last: int) -> int:
    """Damages a file again and again and reads it, in a process with limited memory and time."""
    import warnings

    from sbac.errors import UserError

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for i in range(first, last):
        signal.alarm(60)
        path.write_bytes(mutate(whole, np.random.default_rng([seed, number, i])))
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                read()
            print("@read")
        except UserError as error:
            lines = str(error).splitlines()
            print("@refused" if len(lines) == 1 else f"@bad seed {seed} {number} {i}: {len(lines)} lines: {lines[:2]}")
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {str(error)[:120]!r} at {Path(place.filename).name}:{place.lineno}"
            print(f"@bad seed {seed} {number} {i}: {what}")
        sys.stdout.flush()
    return 0


# --- All of it --------------------------------------------------------------------------------------------------------


def table(outcomes: list[Outcome]) -> str:
    lines = ["| fault | tried | failed | seconds | |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        notes = ", ".join(f"{what} {count:,}" for what, count in sorted(outcome.notes.items()))
        failed, seconds = len(outcome.failures), f"{outcome.seconds:.0f}"
        lines.append(f"| {outcome.name} | {outcome.tried:,} | {failed} | {seconds} | {notes} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--full", type=int, default=10, help="times that the disk is full")
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="kinds of faults (default: all)")
    args = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    with tempfile.TemporaryDirectory(prefix="sbac-torture-") as scratch:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{scratch}/xla")
        import sbac.training.train  # noqa: F401 (imported once, for all the processes that are forked)
        from sbac.cli import train  # noqa: F401

        faults: dict[str, Callable[[Path], Outcome]] = {
            "kills": lambda folder: kills(folder, args.kills, args.seed),
            "full": lambda folder: full_disk(folder, args.full, args.seed),
            "worker": dead_worker,
            "parent": dead_parent,
            "two": two_at_once,
            "forbidden": forbidden,
            "clock": clock_set_back,
            "mutations": lambda folder: mutations(folder, args.mutations, args.seed),
        }
        outcomes: list[Outcome] = []
        for name, fault in faults.items():
            if args.only and name not in args.only:
                continue
            folder = Path(scratch) / name
            folder.mkdir()
            folder.chmod(0o755)
            Path(scratch).chmod(0o755)
            began = time.monotonic()
            outcomes.append(fault(folder))
            outcomes[-1].seconds = time.monotonic() - began
            print(f"{outcomes[-1].name}: {outcomes[-1].tried}, {len(outcomes[-1].failures)} failed", flush=True)
    print(f"\nseed {args.seed}\n\n{table(outcomes)}")
    return 1 if any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
