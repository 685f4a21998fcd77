"""`sbac export`: a trained policy as a file for other software."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sbac.cli.core import Commands
from sbac.errors import UserError, unknown

if TYPE_CHECKING:
    from sbac.policy import Policy
    from sbac.trust.choice import ChoiceRecord


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a policy as ONNX or StableHLO",
        description="Write a policy as a program from observations (n, obs) to actions (n, act), in the environment's "
        "units, with the scaling inside. It is compared with the policy before it is written.",
        epilog="example: sbac export runs/demo --label alpha=1_seed=0 --out policy.onnx",
    )
    parser.add_argument("target", metavar="RUN|POLICY", help="a run's folder or a policy file")
    parser.add_argument("--out", required=True, metavar="FILE", help="where to, such as policy.onnx")
    parser.add_argument("--format", metavar="NAME", help="onnx or stablehlo (default: what FILE ends with)")
    parser.add_argument("--label", metavar="L", help="which policy of the run (default: the one that select took)")
    parser.set_defaults(run=_export)


def _export(args: argparse.Namespace) -> int:
    from sbac.exporting import export

    policy = _policy(Path(args.target), args.label)
    export(policy, args.out, args.format)
    sizes = f"observations (n, {policy.observation_size}) to actions (n, {policy.action_size})"
    print(f"{args.out}: {policy.config['label']}, {sizes}")
    return 0


def _policy(target: Path, label: str | None) -> "Policy":
    """A policy file itself; of a run's folder the policy `label`, or the one that was selected, or the only one."""
    from sbac.policy import Policy
    from sbac.runs import Run, policy_file, read_record

    if target.is_file():
        policy = Policy.load(target)
        if label is not None and policy.config["label"] != label:
            raise UserError(f"{target}: holds the policy {policy.config['label']}, not {label}")
        return policy
    labels = read_record(target).labels
    decided = _decided(target)
    wanted = label or (decided and decided.label) or (labels[0] if len(labels) == 1 else None)
    if wanted is None:
        raise UserError(f"{target}: holds {len(labels)} policies; name one with --label, such as {labels[0]}")
    for candidate in decided.candidates if decided else ():  # of other runs as well
        if candidate.label == wanted:
            from sbac.trust.choice import policy_of

            return policy_of(Run.load(target), candidate)
    if wanted not in labels:
        raise unknown(f"policy of {target}", wanted, labels)
    path = policy_file(target, wanted)
    if not path.exists():
        raise UserError(f"{path}: no such policy yet; finish the run with sbac train --resume")
    return Policy.load(path)


def _decided(folder: Path) -> "ChoiceRecord | None":
    """What was decided last, if anything was."""
    from sbac.cli.select import decided_last
    from sbac.runs import Run

    return decided_last(Run.load(folder)) if (folder / "selection.json").exists() else None
