"""`sbac data`: list, describe, check, convert and make datasets."""

import argparse

from sbac.cli.core import Commands
from sbac.cli.logs import add_log_options, load_log, log_options
from sbac.errors import UserError, shown


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "data",
        help="list, describe, check, convert or make datasets",
        epilog="example: sbac data info hopper-demo",
    )
    actions = Commands(parser, "ACTION")
    listing = actions.add_parser(
        "list", help="what is here, what can be made, what must be downloaded", epilog="example: sbac data list"
    )
    listing.set_defaults(run=_data_list)
    info = actions.add_parser("info", help="describe a dataset", epilog="example: sbac data info hopper-demo")
    info.add_argument("source", nargs="+", metavar="DATASET", help="name, file, folder, quoted pattern or Minari id")
    add_log_options(info.add_argument_group("about the log"))
    info.set_defaults(run=_data_info)
    check = actions.add_parser(
        "check", help="every problem of a file, with its row", epilog="example: sbac data check log.hdf5"
    )
    check.add_argument("files", nargs="+", metavar="FILE", help="file, folder, quoted pattern or Minari id")
    add_log_options(check.add_argument_group("about the log"))
    check.set_defaults(run=_data_check)
    convert = actions.add_parser(
        "convert",
        help="write a dataset in another format",
        description="Write a dataset in another format: the suffix of OUT tells which, and a name without one is a "
        "Minari folder. Bounds and columns are kept, so the options below are needed only once.",
        epilog="example: sbac data convert log.csv log.parquet --columns rewards=r --action-low -2 --action-high 2",
    )
    convert.add_argument("source", nargs="+", metavar="IN", help="name, file, folder or quoted pattern")
    convert.add_argument("out", metavar="OUT", help="new file, in the format of its suffix, or new folder")
    convert.add_argument("--format", metavar="F", help="the format, where the name does not tell it: npy, d3rlpy, ...")
    convert.add_argument("--overwrite", action="store_true", help="replace an existing file")
    add_log_options(convert.add_argument_group("about the log"))
    convert.set_defaults(run=_data_convert)
    make = actions.add_parser(
        "make", help="make stand-ins for D4RL's MuJoCo data", epilog="example: sbac data make hopper-medium-made"
    )
    make.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="such as hopper-medium-made, or all fifteen of them; hopper-medium-td3-made is of the second ladder",
    )
    make.add_argument("--out", metavar="DIR", help="where to (default: the data folder)")
    make.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the episodes (default: 0)")
    make.set_defaults(run=_data_make)
    actions.describe("Datasets: what is here, what a file holds, what is wrong with it, and how to make one.")


def _data_list(args: argparse.Namespace) -> int:
    from sbac.data.inspect import listing

    for line in listing().split("\n"):
        print(shown(line))
    return 0


def _data_info(args: argparse.Namespace) -> int:
    from sbac.data.inspect import info

    for line in info(load_log(args.source, args)).split("\n"):
        print(shown(line))
    return 0


def _data_check(args: argparse.Namespace) -> int:
    from sbac.data.inspect import examine
    from sbac.text import counted

    findings, name = examine(args.files, log_options(args)), ", ".join(args.files)
    notes = [f"note: {note}" for note in findings.notes]
    for line in [*findings.problems, *notes, *(f"warning: {warning}" for warning in findings.warnings)]:
        print(shown(line))
    if findings.problems:
        rows = f" in {findings.wrong_rows} of {counted(findings.rows, 'row')}" if findings.wrong_rows else ""
        raise UserError(f"{name}: {counted(findings.problems_found, 'problem')} found{rows}")
    print(f"{shown(name)}: no problems found in {counted(findings.rows, 'row')}")
    return 0


def _data_convert(args: argparse.Namespace) -> int:
    from sbac.data.converting import convert

    written = convert(load_log(args.source, args), args.out, args.format, args.overwrite)
    for line in written.notes:
        print(f"note: {shown(line)}")
    print(f"{written.rows:,} rows in {args.out}")
    return 0


def _data_make(args: argparse.Namespace) -> int:
    from sbac.making.making import make_datasets

    make_datasets(args.names, out=args.out, seed=args.seed)
    return 0
