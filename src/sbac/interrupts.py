"""Ctrl-C and SIGTERM on the command line: where they were raised and lost, `check` raises them again.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a callback of the garbage collector (JAX has
one) or in a `__del__` it is printed as "Exception ignored in ..." and gone, and a long command would go on.
"""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_pressed = False


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def remembered() -> Generator[None, None, None]:
    """Inside this block Ctrl-C is raised as usual, SIGTERM likewise, and both are recorded for `check`.

    Nothing changes where interrupts are ignored (as `nohup` may do) or have another handler, nor in other threads.
    """
    global _pressed
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _press)
    ends_at_once = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ends_at_once:
        signal.signal(signal.SIGTERM, _press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if ends_at_once:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _pressed = False


def check() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed and the exception was lost."""
    if _pressed:
        raise KeyboardInterrupt


def _press(number: int, frame: FrameType | None) -> None:
    global _pressed
    _pressed = True
    if number == signal.SIGTERM:
        raise Terminated
    signal.default_int_handler(number, frame)
