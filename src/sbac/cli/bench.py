"""`sbac bench`: methods on tasks, in cells."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbac.cli.core import Commands
from sbac.errors import UserError, positive

if TYPE_CHECKING:
    from sbac.lab.bench.bench import Bench
    from sbac.lab.bench.plan import Cell
    from sbac.lab.bench.status import Status


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure methods on tasks, in cells that can be merged",
        description="Train methods on tasks with all their settings and seeds, and keep what was measured in one "
        "small file per cell. Stopped anywhere, the same command continues.",
        epilog="example: sbac bench --tasks hopper-demo --algorithms sbac bc td3-bc --seeds 5 --out results",
    )
    what = parser.add_argument_group("what to measure")
    what.add_argument("--tasks", nargs="+", metavar="DATASET", default=["hopper-demo"], help="default: hopper-demo")
    what.add_argument(
        "--algorithms",
        nargs="+",
        metavar="NAME[@PRESET]",
        default=["sbac", "sbac-q-pi", "one-step", "bc"],
        help="default: sbac, sbac-q-pi, one-step and bc",
    )
    what.add_argument("--seeds", nargs="+", type=int, default=[5], metavar="N", help="how many, or which ones")
    what.add_argument("--preset", default="quick", metavar="NAME", help="where a method has it; else its paper's")
    what.add_argument("--steps", nargs="+", type=int, metavar="N", help="gradient steps of every phase, or of each")
    what.add_argument("--grid", nargs="+", default=[], metavar="NAME.FIELD=V,V", help="in place of a method's own four")
    what.add_argument("--no-grid", action="store_true", help="one setting for each method, its preset's")
    how = parser.add_argument_group("evaluation")
    how.add_argument("--env", metavar="ID", help="environment to evaluate in (default: the dataset's task)")
    how.add_argument("--episodes", type=int, default=10, metavar="N", help="while it trains (default: 10)")
    how.add_argument("--final-episodes", type=int, default=100, metavar="N", help="of the last policies (default: 100)")
    how.add_argument("--workers", type=int, metavar="N", help="evaluation processes (default: one per core)")
    cells = parser.add_argument_group("the results folder and its cells")
    cells.add_argument("--out", default="results", metavar="DIR", help="the results folder (default: results)")
    cells.add_argument("--part", metavar="I/N", help="only every N-th cell, from the I-th on")
    cells.add_argument("--any-code", action="store_true", help="keep cells made by other versions of the code")
    cells.add_argument("--together", type=int, metavar="N", help="cells in one program (default: 1 on a CPU, else all)")
    cells.add_argument("--on", choices=["ray"], help="train on the nodes of a cluster (default: on this machine)")
    cells.add_argument("--address", metavar="A", help="of the Ray cluster (default: the one this machine is in)")
    stage = parser.add_argument_group("something else than training and the final episodes (one of these)")
    only = stage.add_mutually_exclusive_group()
    only.add_argument("--status", action="store_true", help="show where every cell stands, and do nothing")
    only.add_argument("--train-only", action="store_true", help="leave the final episodes for later")
    only.add_argument("--evaluate-only", action="store_true", help="play the final episodes of all trained cells")
    only.add_argument("--merge", nargs="+", metavar="DIR", help="take over the cells of other results folders")
    parser.set_defaults(run=_bench)


def _bench(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.lab.bench.bench import Bench
    from sbac.lab.bench.final import evaluate_trained
    from sbac.lab.bench.finding import CellFinder
    from sbac.lab.bench.plan import parse_grids, plan
    from sbac.lab.bench.status import Status
    from sbac.lab.cells import is_results, merge
    from sbac.lab.protocol import Protocol

    results = Path(args.out)
    if args.merge:
        print(f"{merge(map(Path, args.merge), results)} cells taken over into {results}")
        return 0
    if args.address is not None and args.on is None:
        raise UserError("--address: the address of a Ray cluster, for --on ray")
    for name in ("together", "workers", "episodes", "final_episodes"):
        positive(f"--{name.replace('_', '-')}", getattr(args, name))
    protocol = Protocol(episodes=args.episodes, final_episodes=args.final_episodes)
    if args.evaluate_only:
        if not is_results(results):
            raise UserError(f"{results}: not a results folder (it has no cells/)")
        print(f"{evaluate_trained(results, protocol, args.workers, environment=args.env)} cells completed in {results}")
        return 0
    cells = plan(
        args.tasks,
        args.algorithms,
        seeds=args.seeds[0] if len(args.seeds) == 1 else args.seeds,
        preset=args.preset,
        length=args.steps,
        grids=parse_grids(args.grid, args.no_grid),
        environment=args.env,
    )
    finder = CellFinder(results, protocol, args.any_code)
    bench = Bench(_part(cells, args.part), finder, args.workers, args.together, not args.train_only)
    if args.status:
        status = Status(bench.cells, finder)
    else:
        args.kept = lambda: "the same command continues"
        status = _run(bench, args)
    print(status.view())
    failures = list(status.failures.values())
    if failures:
        raise UserError(f"{len(failures)} of {len(bench.cells)} cells cannot be run; the first: {failures[0]}")
    return 0


def _run(bench: "Bench", args: argparse.Namespace) -> "Status":
    """Runs a bench, here or on a cluster."""
    from sbac.lab.bench.runner import run_bench

    if args.on is None:
        return run_bench(bench)
    from sbac.lab.bench.ray_cluster import connected
    from sbac.lab.bench.spread import Nodes

    with connected(args.address) as cluster:
        return run_bench(bench, Nodes(cluster))


def _part(cells: "Sequence[Cell]", part: str | None) -> "Sequence[Cell]":
    """The cells that `--part I/N` names."""
    if part is None:
        return cells
    first, _, count = part.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise UserError(f"--part {part!r}: expected I/N with 1 <= I <= N, such as 1/3")
    return cells[int(first) - 1 :: int(count)]
