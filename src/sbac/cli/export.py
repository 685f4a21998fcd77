"""`sbac export`: a trained policy as a file for other software."""

import argparse

from sbac.cli.core import Commands


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
    parser.add_argument("--label", metavar="L", help="which policy of the run (default: the one that select chose)")
    parser.add_argument("--alpha", type=float, metavar="A", help="which alpha, of a policy trained for a range of them")
    parser.set_defaults(run=_export)


def _export(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.exporting import export
    from sbac.exporting.choosing import chosen_policy

    policy = chosen_policy(Path(args.target), args.label)
    if args.alpha is not None:
        policy = policy.at(alpha=args.alpha)
    export(policy, args.out, args.format)
    sizes = len(policy.arrays["scale/observation_mean"]), len(policy.arrays["scale/action_low"])
    print(f"{args.out}: {policy.config['label']}, observations (n, {sizes[0]}) to actions (n, {sizes[1]})")
    return 0
