"""`sbac methods`: the methods, or one with its options."""

import argparse

from sbac.cli.core import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "methods",
        help="list the methods, or describe one",
        description="The methods with their papers, phases and presets; with a NAME, that one with all its options.",
        epilog="example: sbac methods iql",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a method (default: all of them)")
    parser.set_defaults(run=_methods)


def _methods(args: argparse.Namespace) -> int:
    from sbac.algorithms.listing import method_text, methods_text

    print(methods_text() if args.name is None else method_text(args.name))
    return 0
