"""A progress bar on a terminal, silence elsewhere."""

import sys
from typing import Any, Protocol


class Progress(Protocol):
    """What a launch tells of its progress."""

    def __enter__(self) -> "Progress": ...
    def __exit__(self, *error: Any) -> None: ...
    def phase(self, name: str, runs: int, done: int, total: int) -> None: ...
    def step(self, done: int, note: str = "") -> None: ...


class Silent:
    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def phase(self, name: str, runs: int, done: int, total: int) -> None:
        return None

    def step(self, done: int, note: str = "") -> None:
        return None


class Bar:
    """Steps, steps/s, time left and the newest scores, one line per phase."""

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
        self._task: Any = None

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.stop()

    def phase(self, name: str, runs: int, done: int, total: int) -> None:
        label = f"{name} ({runs} runs)" if runs > 1 else name
        self._task = self._bar.add_task(label, total=total, completed=done, rate="", note="")

    def step(self, done: int, note: str = "") -> None:
        speed = self._bar.tasks[-1].speed
        rate = f"{speed:,.0f} steps/s" if speed else ""
        self._bar.update(self._task, completed=done, rate=rate, note=note)


def make_progress(wanted: bool | None) -> Progress:
    """A bar if wanted, or if nobody said and the error stream is a terminal."""
    return Bar() if (sys.stderr.isatty() if wanted is None else wanted) else Silent()
