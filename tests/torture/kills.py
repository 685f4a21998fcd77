"""Kills at any moment, and full disks: the run goes on to the bits of an unbroken one."""

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.torture.processes import Outcome, check_loads, contents, is_clean, make_log, run, training


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


def kills(folder: Path, count: int, seed: int, method: str) -> Outcome:
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
            ended = run(training(log, whole, watched, method), folder)
            outcome.expect(ended.code == 0, f"an unbroken run ended with {ended.code}: {ended.text[-300:]}")
            wholes[watched] = contents(whole)
        out = folder / f"broken-{number}"
        for _ in range(min(40, count - outcome.tried)):
            event, at = EVENTS[rng.integers(len(EVENTS))], int(rng.integers(1, 30))
            where = f"seed {seed}, run {number}, kill {outcome.tried} {event} {at}"
            ended = run(training(log, out, watched, method), folder, kill_at(event, at))
            check_loads(out, outcome, where)
            if ended.code == 0:
                break
            outcome.tried += 1
            outcome.note(event)
            outcome.expect(ended.code == -signal.SIGKILL, f"{where}: ended with {ended.code}: {ended.text[-300:]}")
        else:
            ended = run(training(log, out, watched, method), folder)
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
