"""What else hears of a training: callbacks, and the loggers TensorBoard and Weights & Biases as callbacks."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sbac.callbacks.callback import NO_CALLBACKS, Callback, Callbacks, Row
from sbac.callbacks.tensorboard import TensorBoard
from sbac.callbacks.weights_and_biases import WeightsAndBiases
from sbac.errors import unknown

__all__ = ["NO_CALLBACKS", "Callback", "Callbacks", "Row", "TensorBoard", "WeightsAndBiases", "loggers"]

LOGGERS: dict[str, Callable[[Path], Callback]] = {
    "tensorboard": lambda run: TensorBoard(run / "tensorboard"),
    "wandb": WeightsAndBiases,
}
"""The loggers by name, each from the folder of the run that it logs."""


def loggers(names: Sequence[str], run: str | Path) -> list[Callback]:
    """The loggers of these names. They write into the run's folder."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
    return [LOGGERS[name](Path(run)) for name in dict.fromkeys(names)]
