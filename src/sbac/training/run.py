"""A run's folder: what is in it, when it may be written, and how it is read back."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sbac import files
from sbac.errors import UserError
from sbac.policy import Policy

FORMAT = 1
REQUIRED = {"format", "algorithm", "preset", "labels", "runs", "evaluation", "versions"}
UNFINISHED = "config.json.tmp"  # a folder with nothing else was left by a kill during the very first write


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


def open_folder(path: Path, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Makes the folder ready for this run, or says why it may not be."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: a file; expected a folder for the run")
    occupied = path.is_dir() and any(entry.name != UNFINISHED for entry in path.iterdir())
    if occupied:
        existing = read_config(path)  # a folder that is not a run is never touched
        if resume:
            changed = difference(existing | {"versions": None}, config | {"versions": None})
            if changed:
                raise UserError(f"{path}: holds another run, and cannot be resumed as this one: {changed}")
            return
        if not overwrite:
            raise UserError(f"{path}: holds a run already; use --resume to continue it or --overwrite to replace it")
        for name in ("checkpoint", "policies", "metrics.jsonl", "evaluations.jsonl"):
            files.remove(path / name)
    files.write_json(path / "config.json", config)


def difference(old: Any, new: Any, where: str = "") -> str | None:
    """The first place where two JSON values differ, as `place: old, not new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys: list[str] = sorted(old.keys() | new.keys())
        return _first(difference(old.get(key), new.get(key), f"{where}.{key}".lstrip(".")) for key in keys)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return _first(difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(old, new, strict=True)))
    return None if old == new else f"{where} is {old!r}, not {new!r}"


def _first(found: Iterable[str | None]) -> str | None:
    return next(filter(None, found), None)
