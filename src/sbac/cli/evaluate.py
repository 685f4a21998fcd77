"""`sbac evaluate`: a run's policies in an environment."""

import argparse
import sys

from sbac.cli.core import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="run a trained run's policies in an environment",
        description="Run the policies of a run, or one policy file, in an environment.",
        epilog="example: sbac evaluate runs/demo --episodes 100",
    )
    parser.add_argument("target", metavar="RUN", help="a run's folder or a policy file")
    parser.add_argument("--env", metavar="ID", help="task, or Gymnasium id (default: the run's task)")
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="of each policy (default: 10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the first episode (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON line per policy instead of a table")
    parser.set_defaults(run=_evaluate)


def _evaluate(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from sbac.evaluation.evaluate_run import evaluate_policies, policy_episodes_json
    from sbac.files import finite
    from sbac.report.summary import evaluation_table, source
    from sbac.runs import read_record

    rows = evaluate_policies(Path(args.target), args.env, args.episodes, args.seed)
    for row in rows:
        if row.failed is not None:
            print(f"note: the run of seed {row.seed} {dict(row.setting)} failed: {row.failed}", file=sys.stderr)
    if args.json:
        print("\n".join(json.dumps(finite(policy_episodes_json(row))) for row in rows))
        return 0
    if Path(args.target).is_dir():
        print(source(read_record(Path(args.target))))
    print(evaluation_table(rows))
    return 0
