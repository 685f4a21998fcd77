"""`sbac report`: one page of runs, or tables in Markdown of results folders."""

import argparse

from sbac.cli.core import Commands
from sbac.errors import UserError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="one HTML page of runs, or the tables of a bench in Markdown",
        description="Make one self-contained HTML page of runs: what came out, learning curves, what training logged, "
        "and the configuration behind every number. The tables and figures of a bench go into Markdown.",
        epilog="example: sbac report runs/demo --out page.html",
    )
    parser.add_argument("targets", nargs="+", metavar="RUN|RESULTS", help="a run's folder, or a bench's results folder")
    parser.add_argument("--out", metavar="PAGE", help="the page of runs (default: report.html)")
    parser.add_argument("--title", default="sbac report", help="the page's heading")
    parser.add_argument(
        "--card", action="store_true", help="the policy card of one run: what the chosen policy changes, and how sure"
    )
    parser.add_argument("--label", metavar="L", help="with --card: another policy than the one that select took")
    parser.add_argument("--data", metavar="D", help="with --card: the log, where the run's record does not lead to it")
    parser.add_argument("--markdown", metavar="FILE", help="put the tables into a Markdown file, between its marks")
    parser.add_argument(
        "--developed-on",
        nargs="+",
        default=[],
        metavar="RESULTS",
        help="take each method's one setting from these trainings: the best there, fixed before the others were run",
    )
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.cli.select import decided_last
    from sbac.files import write_atomic
    from sbac.lab.cells import is_results
    from sbac.lab.naming import collect
    from sbac.lab.report.inputs import read_inputs
    from sbac.lab.report.markdown import write_tables
    from sbac.report.page import run_page, runs_page
    from sbac.runs import Run
    from sbac.text import counted

    if args.card:
        if args.developed_on:
            raise UserError("--developed-on: not read with --card")
        return _card(args)
    if args.label or args.data:
        raise UserError(f"{'--label' if args.label else '--data'}: only read with --card")
    results = [target for target in args.targets if is_results(Path(target))]
    if results and (args.out or not args.markdown):
        raise UserError(f"{results[0]}: the results of a bench; name a Markdown file for its tables with --markdown")
    inputs = read_inputs(map(Path, args.targets))
    records = [record for record, _ in inputs]
    developed_on = [record for record, _ in read_inputs(map(Path, args.developed_on))]
    if args.markdown:
        write_tables(Path(args.markdown), records, developed_on)
        print(f"tables of {counted(len(records), 'cell')} in {args.markdown}")
    if args.out or not args.markdown:
        out = Path(args.out or "report.html")
        if len(records) == 1:
            page = run_page(records[0], args.title, decided_last(Run.load(inputs[0][1])))
        else:
            page = runs_page(records, collect(records), args.title)
        write_atomic(out, page.encode())
        print(f"page in {out}")
    return 0


def _card(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.cli.select import choose, decided_last
    from sbac.errors import unknown
    from sbac.files import write_atomic
    from sbac.report.card import build_card
    from sbac.runs import Run
    from sbac.trust.choice import write_choice
    from sbac.trust.contenders import log_of
    from sbac.trust.log import read_log

    if len(args.targets) != 1:
        raise UserError(f"--card: {len(args.targets)} runs; expected one")
    run = Run.load(Path(args.targets[0]))
    data = log_of([run], args.data)
    decided = decided_last(run)
    choice = choose([run], data) if decided is None else None
    record = decided if choice is None else choice.record
    assert record is not None
    if data.hash != record.log.hash:
        raise UserError(f"{args.targets[0]}: it was judged on another log, {record.log.name}; name that with --data")
    labels = [candidate.label for candidate in record.candidates]
    if args.label is not None and args.label not in labels:
        raise unknown("policy", args.label, labels)
    out = Path(args.out or "card.html")
    write_atomic(out, build_card(run, read_log(data, record.discount), record, args.label).encode())
    if choice is not None:
        write_choice(Path(args.targets[0]), record, choice.clone)
    print(f"card of {args.label or record.label} in {out}")
    print(f"next: sbac export {args.targets[0]} --out policy.onnx")
    return 0
