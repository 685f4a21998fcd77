"""Which policy of a run is exported."""

from dataclasses import dataclass
from pathlib import Path

from sbac import files
from sbac.errors import UserError, unknown
from sbac.policy import Policy
from sbac.records import parse
from sbac.runs import offered, policy_file, read_record

SELECTION = "selection.json"
"""The file of a run's folder in which `sbac select` names its choice."""


@dataclass(frozen=True)
class Selection:
    """What is read of it here."""

    label: str


def chosen_policy(target: Path, label: str | None = None) -> Policy:
    """A policy file itself; of a run's folder the policy `label`, or the one that was selected, or the only one."""
    if target.is_file():
        policy = Policy.load(target)
        if label is not None and policy.config["label"] != label:
            raise UserError(f"{target}: holds the policy {policy.config['label']}, not {label}")
        return policy
    labels = read_record(target).labels
    wanted = label or _selected(target) or (labels[0] if len(labels) == 1 else None)
    if wanted is None:
        raise UserError(f"{target}: holds {len(labels)} policies; name one with --label, such as {labels[0]}")
    if wanted not in labels:
        return _turned(target, labels, wanted)
    path = policy_file(target, wanted)
    if not path.exists():
        raise UserError(f"{path}: no such policy yet; finish the run with sbac train --resume")
    return Policy.load(path)


def _turned(target: Path, labels: list[str], wanted: str) -> Policy:
    """A policy with a dial, at the alpha that a label names."""
    paths = [policy_file(target, label) for label in labels]
    found = {str(p.config["label"]): p for p in offered(Policy.load(path) for path in paths if path.exists())}
    if wanted not in found:
        raise unknown(f"policy of {target}", wanted, list(found) or labels)
    return found[wanted]


def _selected(folder: Path) -> str | None:
    path = folder / SELECTION
    return parse(Selection, files.read_json(path), str(path)).label if path.exists() else None
