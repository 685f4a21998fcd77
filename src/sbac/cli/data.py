"""`sbac data`: list, describe, check and make datasets."""

import argparse

from sbac.cli.core import Commands
from sbac.errors import UserError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "data",
        help="list, describe, check or make datasets",
        epilog="example: sbac data info hopper-demo",
    )
    actions = Commands(parser, "ACTION")
    listing = actions.add_parser(
        "list", help="what is here, what can be made, what must be downloaded", epilog="example: sbac data list"
    )
    listing.set_defaults(run=_data_list)
    info = actions.add_parser(
        "info", help="describe a dataset", epilog="example: sbac data info hopper-demo --plot hopper.png"
    )
    info.add_argument("source", metavar="DATASET", help="name, file, folder or Minari id")
    info.add_argument("--plot", metavar="PNG", help="also draw it")
    info.set_defaults(run=_data_info)
    check = actions.add_parser(
        "check", help="every problem of a file, with its row", epilog="example: sbac data check log.hdf5"
    )
    check.add_argument("file", metavar="FILE", help="file, folder or Minari id")
    check.set_defaults(run=_data_check)
    make = actions.add_parser(
        "make", help="make stand-ins for D4RL's MuJoCo data", epilog="example: sbac data make hopper-medium-made"
    )
    make.add_argument("names", nargs="+", metavar="NAME", help="such as hopper-medium-made, or all")
    make.add_argument("--out", metavar="DIR", help="where to (default: the data folder)")
    make.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the episodes (default: 0)")
    make.set_defaults(run=_data_make)
    actions.describe("Datasets: what is here, what a file holds, what is wrong with it, and how to make one.")


def _data_list(args: argparse.Namespace) -> int:
    from sbac.data.inspect import listing

    print(listing())
    return 0


def _data_info(args: argparse.Namespace) -> int:
    from sbac.data.inspect import info

    print(info(args.source, plot=args.plot))
    return 0


def _data_check(args: argparse.Namespace) -> int:
    from sbac.data.inspect import examine

    findings = examine(args.file)
    problems = findings.problems
    for line in [*problems, *(f"note: {note}" for note in findings.notes)]:
        print(line)
    if problems:
        raise UserError(f"{args.file}: {len(problems)} problem{'s' if len(problems) > 1 else ''} found")
    print(f"{args.file}: no problems found")
    return 0


def _data_make(args: argparse.Namespace) -> int:
    from sbac.making.making import make_datasets

    make_datasets(args.names, out=args.out, seed=args.seed)
    return 0
