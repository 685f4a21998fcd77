"""`sbac bench`: methods on tasks, in cells."""

import argparse
from typing import TYPE_CHECKING

from sbac.cli.core import Commands
from sbac.errors import UserError, positive

if TYPE_CHECKING:
    from sbac.lab.bench.bench import Bench
    from sbac.lab.bench.status import Status


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure methods on tasks, in cells",
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
    cells.add_argument("--together", type=int, metavar="N", help="cells in one program (default: 1 on a CPU, else all)")
    cells.add_argument("--on", choices=["ray"], help="train on the nodes of a cluster (default: on this machine)")
    cells.add_argument("--address", metavar="A", help="of the Ray cluster (default: the one this machine is in)")
    cells.add_argument("--status", action="store_true", help="show where every cell stands, and do nothing")
    cells.add_argument("--train-only", action="store_true", help="leave the final episodes to the same command later")
    parser.set_defaults(run=_bench)


def _bench(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.lab.bench.bench import Bench
    from sbac.lab.bench.finding import CellFinder
    from sbac.lab.bench.plan import parse_grids, plan
    from sbac.lab.bench.status import Status
    from sbac.lab.protocol import Protocol

    if args.address is not None and args.on is None:
        raise UserError("--address: the address of a Ray cluster, for --on ray")
    for name in ("together", "workers", "episodes", "final_episodes"):
        positive(f"--{name.replace('_', '-')}", getattr(args, name))
    protocol = Protocol(episodes=args.episodes, final_episodes=args.final_episodes)
    cells = plan(
        args.tasks,
        args.algorithms,
        seeds=args.seeds[0] if len(args.seeds) == 1 else args.seeds,
        preset=args.preset,
        length=args.steps,
        grids=parse_grids(args.grid, args.no_grid),
        environment=args.env,
    )
    finder = CellFinder(Path(args.out), protocol)
    bench = Bench(cells, finder, args.workers, args.together, not args.train_only)
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
