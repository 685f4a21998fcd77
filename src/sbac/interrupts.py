"""Ctrl-C and SIGTERM on the command line: they end a command within seconds, wherever they hit it.

Python raises KeyboardInterrupt when its main thread runs Python again: while XLA compiles, that may be minutes later.
In a callback of the garbage collector (JAX has one) or in a `__del__` it is printed as "Exception ignored in ..." and
gone. So a thread waits for the signal too, and ends the process where the command does not end by itself.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import NoReturn

PATIENCE = 2.0
"""Seconds that a command has to end by itself, and then again those that it has to undo what is half done."""
undoing: list[Callable[[], object]] = []
"""What is to be done, the last first, where a process ends without leaving the blocks that it is in."""

_ending = threading.Lock()
"""Whoever has it ends the process: the main thread, or the one that waited for it."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def guarded(work: Callable[[], int], last_words: Callable[[int], object], own_process: bool) -> int:
    """What `work` returns; where a signal ends it, 128 and the signal's number, after `last_words` of that number.

    own_process: the process ends with it, at once: JAX would wait for what it compiles or runs, or crash over it.
    """
    with heard(last_words if own_process else None):
        try:
            return work()
        except KeyboardInterrupt as stopped:
            number = signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT
            if own_process and _ending.acquire():
                _leave(number, last_words)
            last_words(number)
            return 128 + number


@contextmanager
def heard(last_words: Callable[[int], object] | None) -> Generator[None, None, None]:
    """Inside this block Ctrl-C is raised as usual, and SIGTERM likewise.

    With `last_words` a thread waits for them too, and says these before it ends the process. Nothing changes where
    interrupts are ignored (as `nohup` may do) or have another handler, nor in other threads.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    numbers = [signal.SIGINT, *([signal.SIGTERM] if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else [])]

    def press(number: int, frame: FrameType | None) -> NoReturn:
        if last_words is not None:  # it ends soon: a second one would only disturb that
            for each in numbers:
                signal.signal(each, signal.SIG_IGN)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    with ExitStack() as stack:
        for each in numbers:
            stack.callback(signal.signal, each, signal.signal(each, press))
        if last_words is not None:
            # Python writes a signal's number there at once, whatever the main thread is doing.
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writer, warn_on_full_buffer=False))
            threading.Thread(target=_end_late, args=(reader, last_words), daemon=True).start()
        yield


def _end_late(signals: int, last_words: Callable[[int], object]) -> None:
    """Waits for a signal and then for the command to end, and ends the process where it does not."""
    number = 0
    while number not in (signal.SIGINT, signal.SIGTERM):
        number = os.read(signals, 1)[0]
    time.sleep(PATIENCE)
    if _ending.acquire(blocking=False):
        _leave(number, last_words)


def _leave(number: int, last_words: Callable[[int], object]) -> NoReturn:
    """Undoes what is half done, says the last words and ends the process, even where one of these hangs."""
    last_resort = threading.Timer(PATIENCE, os._exit, [128 + number])
    last_resort.daemon = True
    last_resort.start()
    for end in (*reversed(undoing), partial(last_words, number), sys.stdout.flush, sys.stderr.flush):
        with suppress(Exception):
            end()
    os._exit(128 + number)
