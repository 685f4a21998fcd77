"""A run's folder, read: its record, its metrics and evaluations, its policies."""

from pathlib import Path
from typing import Any

from sbac import files
from sbac.errors import UserError
from sbac.policy import Policy

FORMAT = 1
REQUIRED = {"format", "algorithm", "preset", "labels", "runs", "evaluation", "versions"}


class Run:
    """A training run: its configuration, its metrics and evaluations, and the policies that came out."""

    def __init__(
        self,
        config: dict[str, Any],
        policies: list[Policy],
        metrics: list[dict[str, Any]],
        evaluations: list[dict[str, Any]],
        folder: Path | None = None,
    ) -> None:
        self.config = config
        self.policies = policies
        self.metrics = metrics
        self.evaluations = evaluations
        self.folder = folder

    @property
    def diverged(self) -> list[str]:
        """Labels of the policies that training has left without numbers: an infinity or a NaN is among their arrays."""
        return [policy.config["label"] for policy in self.policies if not policy.is_finite]

    @staticmethod
    def load(folder: str | Path) -> "Run":
        """Reads a run's folder, finished or not."""
        path = Path(folder)
        config = read_config(path)
        policies = [Policy.load(p) for p in sorted((path / "policies").glob("*.safetensors"))]
        order = {label: i for i, label in enumerate(config["labels"])}
        policies.sort(key=lambda p: order.get(p.config["label"], len(order)))
        return Run(
            config, policies, files.read_rows(path / "metrics.jsonl"), files.read_rows(path / "evaluations.jsonl"), path
        )


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a run's folder."""
    if not path.is_dir():
        raise UserError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}; expected a run's folder")
    if not (path / "config.json").exists():
        raise UserError(f"{path}: not a run's folder (it has no config.json)")
    config = files.read_json(path / "config.json")
    whole = isinstance(config, dict) and config.keys() >= REQUIRED  # pyright: ignore[reportUnknownMemberType]
    if not whole or config["format"] != FORMAT:
        raise UserError(f"{path / 'config.json'}: not a run of this version of sbac (expected format {FORMAT})")
    return config  # pyright: ignore[reportUnknownVariableType]
