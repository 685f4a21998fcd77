"""The progress bar of long commands: on a terminal, and nowhere else unless it is asked for."""

import sys


class Progress:
    """Steps done, steps a second, time left and a note, one line per stretch of work; or nothing at all.

    `shown` None: shown if the error stream is a terminal.
    """

    def __init__(self, shown: bool | None = None) -> None:
        self._bar = None
        if sys.stderr.isatty() if shown is None else shown:
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

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, label: str, total: int, done: int = 0) -> None:
        """Starts a new line: `done` of `total` steps are done."""
        if self._bar is not None:
            self._bar.add_task(label, total=total, completed=done, rate="", note="")

    def reach(self, done: int, note: str = "") -> None:
        """Sets how many steps of the newest line are done."""
        if self._bar is not None:
            task = self._bar.tasks[-1]
            self._bar.update(task.id, completed=done, rate=_rate(task.speed), note=note)


def _rate(speed: float | None) -> str:
    return f"{speed:,.0f} steps/s" if speed else ""
