"""Weights & Biases as a callback."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sbac.callbacks.callback import Callback, Row, curves, row_label, settings
from sbac.errors import UserError
from sbac.records import Json
from sbac.runs import Run

if TYPE_CHECKING:
    import wandb


class WeightsAndBiases(Callback):
    """A run there for each run of the grid, all of one group, so that the site can average over seeds."""

    def __init__(
        self,
        folder: str | Path,
        project: str | None = None,
        group: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
    ) -> None:
        """`folder`: where its files go, into a folder `wandb` in it. project, mode: None: what WANDB_PROJECT and
        WANDB_MODE say, or "sbac" and online. group: None: the folder's name. `offline` needs no account; `wandb sync`
        sends the files later.
        """
        try:
            import wandb
        except ImportError:
            raise UserError("logging to Weights & Biases needs the package wandb: pip install 'sbac[log]'") from None
        self._wandb, self._folder = wandb, Path(folder)
        self._project, self._group, self._mode = project, group or self._folder.name, mode
        self._runs: dict[str, wandb.Run] = {}
        self._phases: set[tuple[str, Json]] = set()

    def on_metrics(self, rows: Sequence[Row]) -> None:
        for row in rows:
            numbers = dict(curves(row))
            self._run(row).log({**numbers, f"{row['phase']}/step": row["step"]})

    def on_evaluation(self, rows: Sequence[Row]) -> None:
        self.on_metrics(rows)

    def on_end(self, run: Run) -> None:
        for entry in self._runs.values():
            entry.config.update({"preset": run.record.preset, "data": run.record.data and run.record.data.name})
            entry.finish()
        self._runs.clear()

    def _run(self, row: Row) -> "wandb.Run":
        label = row_label(row)
        if label not in self._runs:
            try:
                self._runs[label] = self._wandb.init(
                    project=self._project or os.environ.get("WANDB_PROJECT") or "sbac",
                    group=self._group,
                    name=label,
                    dir=str(self._folder),
                    mode=self._mode,
                    config={"algorithm": row["algorithm"], "seed": row["seed"], **settings(row)},
                    reinit="create_new",
                    settings=self._wandb.Settings(console="off"),  # the runs of a grid share one
                )
            except self._wandb.Error as error:
                hint = "log in with `wandb login`, or set WANDB_MODE=offline"
                raise UserError(f"Weights & Biases: {error}; {hint}") from None
        if (label, row["phase"]) not in self._phases:  # every phase counts its own steps
            self._phases.add((label, row["phase"]))
            self._runs[label].define_metric(f"{row['phase']}/*", step_metric=f"{row['phase']}/step")
        return self._runs[label]
