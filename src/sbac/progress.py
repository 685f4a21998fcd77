"""What a long command says while it works: a bar on a terminal, elsewhere a plain line a minute."""

import sys
import threading
import time

from sbac import interrupts

FIRST_LINE = 10.0
"""Seconds before the first plain line: what is done by then needs none."""
EVERY_LINE = 60.0
SHORTEST = 1.0
"""Seconds without which a rate says nothing."""
COMPILING = "compiling ..."


class Display:
    """Somewhere to show how far a stretch of work is; this one shows nothing. All calls come from one thread."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def begin(self, label: str, total: int, done: int) -> None:
        pass

    def reach(self, done: int, note: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class Progress:
    """Steps done, steps a second, time left and a note, one line per stretch of work; or nothing at all.

    `shown` None: as fits where the error stream goes; True: a bar, wherever it goes; False: nothing.
    """

    def __init__(self, shown: bool | None = None) -> None:
        self._display, self._what = _display(shown), ""

    def __enter__(self) -> "Progress":
        self._display.start()
        interrupts.undoing.append(self._display.stop)  # a terminal has its cursor back
        return self

    def __exit__(self, *error: object) -> None:
        interrupts.undoing.remove(self._display.stop)
        self._display.stop()

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Starts a new line: `done` of `total` steps are done. Until the first `reach`, it says that it compiles."""
        self._display.begin(label, total, done)

    def reach_in(self, what: str, done: int, total: int) -> None:
        """How far one thing after the other is: a new one begins a new bar."""
        if what != self._what:
            self.begin(what, total, done)
            self._what = what
        self.reach(done)

    def reach(self, done: int, note: str = "") -> None:
        """Sets how many steps of the newest line are done."""
        self._display.reach(done, note)

    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        self._display.say(text)


def _display(shown: bool | None) -> Display:
    if shown is False:
        return Display()
    return TerminalBar() if shown or sys.stderr.isatty() else PlainLines()


class TerminalBar(Display):
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()

    def begin(self, label: str, total: int, done: int) -> None:
        self._bar.add_task(label, total=total, completed=done, rate="", note=COMPILING)

    def reach(self, done: int, note: str) -> None:
        task = self._bar.tasks[-1]
        rate = f"{task.speed:,.0f} steps/s" if task.speed else ""
        self._bar.update(task.id, completed=done, rate=rate, note=note)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


class Stretch:
    """How far a stretch of work is, and how fast it goes since its program was compiled."""

    def __init__(self, label: str, total: int, done: int) -> None:
        self.label, self.total, self.done, self.note = label, total, done, ""
        self._first: tuple[float, int] | None = None
        self._last = (time.monotonic(), done)

    def reach(self, done: int, note: str) -> None:
        self._last = (time.monotonic(), done)
        self._first = self._first or self._last
        self.done, self.note = done, note

    @property
    def rate(self) -> float | None:
        """Steps a second, once there is enough to tell."""
        if self._first is None or self._last[1] == self._first[1] or self._last[0] - self._first[0] < SHORTEST:
            return None
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])

    def text(self) -> str:
        if self._first is None:
            return f"{self.label}: {COMPILING}"
        parts = [f"{self.label}: {self.done:,} of {self.total:,} steps"]
        if self.rate is not None:
            left = round((self.total - self.done) / self.rate)
            parts += [f"{self.rate:,.{0 if self.rate >= 10 else 1}f} steps/s", f"{left // 60}:{left % 60:02d} left"]
        return ", ".join([*parts, *([self.note] if self.note else [])])


class PlainLines(Display):
    """A plain line a minute, for logs and pipes. A thread of its own writes it: compiling takes minutes as well."""

    def __init__(self) -> None:
        self._now: Stretch | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def begin(self, label: str, total: int, done: int) -> None:
        self._now = Stretch(label, total, done)

    def reach(self, done: int, note: str) -> None:
        if self._now is not None:
            self._now.reach(done, note)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _write(self) -> None:
        pause = FIRST_LINE
        while not self._stopped.wait(pause):
            now, pause = self._now, EVERY_LINE
            if now is not None:
                print(now.text(), file=sys.stderr, flush=True)
