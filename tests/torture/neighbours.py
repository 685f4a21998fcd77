"""What happens beside a training: dead workers and parents, a second process, a closed folder, a clock set back."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture.processes import PATIENCE, Outcome, command, contents, is_clean, make_log, run, start, training, wait

WORKER = "sbac.evaluation.worker"


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
        import sbac

        sbac.load(log)  # an interpreter in a home of root's cannot be read once root is gone: now imports all it needs
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
