"""TensorBoard as a callback, through tensorboardX, which needs no TensorFlow."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbac.callbacks.callback import Callback, Row, curves, row_label, row_step
from sbac.errors import UserError
from sbac.runs import Run

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

SECONDS = 10
"""After so long the newest numbers are on the disk."""


class TensorBoard(Callback):
    """Writes event files: a folder for each run of the grid, so that TensorBoard draws them over each other."""

    def __init__(self, folder: str | Path) -> None:
        """`folder`: what `tensorboard --logdir` is given."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError("logging to TensorBoard needs the package tensorboardX: pip install 'sbac[log]'") from None
        self._make, self._folder = SummaryWriter, Path(folder)
        self._writers: dict[str, SummaryWriter] = {}

    def on_metrics(self, rows: Sequence[Row]) -> None:
        for row in rows:
            writer = self._writer(row_label(row))
            for name, value in curves(row):
                writer.add_scalar(name, value, row_step(row))

    def on_evaluation(self, rows: Sequence[Row]) -> None:
        self.on_metrics(rows)

    def on_end(self, run: Run) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, label: str) -> "SummaryWriter":
        if label not in self._writers:
            self._writers[label] = self._make(str(self._folder / label), flush_secs=SECONDS)
        return self._writers[label]
