"""`sbac report`: one page, or tables in Markdown, of runs and results folders."""

import argparse

from sbac.cli.core import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="one HTML page, or tables in Markdown, of runs and benches",
        description="Make one self-contained HTML page of runs and results folders: tables, learning curves, "
        "stability, what training logged, and the configuration behind every number.",
        epilog="example: sbac report runs/demo --out page.html",
    )
    parser.add_argument("targets", nargs="+", metavar="RUN|RESULTS", help="a run's folder, or a bench's results folder")
    parser.add_argument("--out", metavar="PAGE", help="the page (default: report.html, unless --markdown is given)")
    parser.add_argument("--title", default="sbac report", help="the page's heading")
    parser.add_argument("--render", action="store_true", help="add pictures of a rollout, drawn by MuJoCo")
    parser.add_argument("--markdown", metavar="FILE", help="put the tables into a Markdown file, between its marks")
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.files import write_atomic
    from sbac.report.inputs import read_inputs, render_strips
    from sbac.report.markdown import write_tables
    from sbac.report.page import build_page
    from sbac.text import counted

    inputs = read_inputs(map(Path, args.targets))
    records = [record for record, _ in inputs]
    if args.markdown:
        write_tables(Path(args.markdown), records)
        print(f"tables of {counted(len(records), 'cell')} in {args.markdown}")
    if args.out or not args.markdown:
        out = Path(args.out or "report.html")
        strips = render_strips(inputs) if args.render else []
        write_atomic(out, build_page(records, args.title, strips).encode())
        print(f"page in {out}")
    return 0
