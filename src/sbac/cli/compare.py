"""`sbac compare`: two runs side by side."""

import argparse

from sbac.cli.core import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "compare",
        help="two runs side by side",
        description="Where the configurations of two runs differ, how their policies did, and what sbac select "
        "found of them.",
        epilog="example: sbac compare runs/first runs/second",
    )
    parser.add_argument("first", metavar="RUN", help="a run's folder")
    parser.add_argument("second", metavar="RUN", help="another one")
    parser.set_defaults(run=_compare)


def _compare(args: argparse.Namespace) -> int:
    from sbac.report.compare import compare
    from sbac.runs import Run

    print(compare(Run.load(args.first), Run.load(args.second), (args.first, args.second)))
    return 0
