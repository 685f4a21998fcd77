"""The command line: parses, calls the API, prints. Nothing heavy is imported before it is needed."""

import argparse
import errno
import os
import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from sbac import interrupts
from sbac.errors import UserError, positive

if TYPE_CHECKING:
    from sbac.bench.plan import Cell
    from sbac.runs import Run


HELP = frozenset({"-h", "--help"})


class Parser(argparse.ArgumentParser):
    """argparse with this project's manners: one `error:` line, exit code 2, no abbreviations."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The words this parser knows, and the options it does not know with all their values."""
        known: list[str] = []
        others: list[str] = []
        target = known
        for word in words:
            if word in HELP:
                known.append(word)
                continue
            if word.startswith("--") and word != "--":
                target = known if word.split("=")[0] in self._option_string_actions else others
            target.append(word)
        return known, others

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


@interrupts.remembered()
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; bad input ends with one line on stderr and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = argparse.Namespace(interrupted="")
    try:
        parser, train = build_parsers()
        extra: list[str] = []
        if words[:1] == ["train"]:  # a method's options are not declared here, and take all values that follow them
            known_words, extra = train.split(words[1:])
            words = ["train", *known_words]
            if any(word.split("=")[0] == "--algorithm" for word in words) and not HELP.isdisjoint(words):
                parser.parse_args([word for word in words if word not in HELP], known)
                return _method_options(known)
        parser.parse_args(words, known)
        known.extra = extra
        return known.run(known) or 0
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if not reader_has_left():
            raise  # it was another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            print(f"error: {error.filename or 'writing'}: {error.strerror}", file=sys.stderr)
            return 2
        raise
    except KeyboardInterrupt:
        print("; ".join(filter(None, ["interrupted", known.interrupted])), file=sys.stderr)
        return 130


def reader_has_left() -> bool:
    """Whether who read our output has read enough, as `head` does."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def build_parsers() -> tuple[Parser, Parser]:
    """The parser of everything, and that of `train`."""
    parser = Parser(
        prog="sbac",
        description="Offline reinforcement learning: policies from a log of decisions.",
        epilog="example: sbac train hopper-demo --alpha 0.5 2 --seeds 5 --out runs/demo",
    )
    from sbac import __version__

    parser.add_argument("--version", action="version", version=f"sbac {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    train = _train_parser(commands)
    _methods_parser(commands)
    _evaluate_parser(commands)
    _data_parser(commands)
    _bench_parser(commands)
    _report_parser(commands)
    _compare_parser(commands)
    return parser, train


# --- train --------------------------------------------------------------------------------------------------------


def _train_parser(commands: Any) -> Parser:
    parser = commands.add_parser(
        "train",
        help="learn policies from a dataset",
        description="Learn policies from a dataset. Every option of the method can be given as --name VALUE ...; "
        "several values make a grid, and the whole grid trains at once. `sbac train --algorithm NAME --help` lists the "
        "options of a method, `sbac methods` the methods.",
        epilog="example: sbac train hopper-medium-made --seeds 5 --alpha 0.2 0.5 2 5 --out runs/hopper",
    )
    parser.add_argument(
        "dataset",
        nargs="?",
        default="hopper-demo",
        metavar="DATASET",
        help="embedded name, task, file, folder or Minari id (default: hopper-demo); an environment for sac and td3",
    )
    parser.add_argument("--algorithm", default="sbac", help="which method (default: sbac)")
    parser.add_argument("--task", metavar="NAME", help="the task a file belongs to, where its name does not say it")
    parser.add_argument("--horizon", type=int, metavar="N", help="the time limit of a log that does not flag it")
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[1],
        metavar="N",
        help="how many seeds, or which ones if several are given",
    )
    parser.add_argument("--preset", default="quick", help="quick (default), paper, or what else the method has")
    parser.add_argument(
        "--steps", nargs="+", type=int, metavar="N", help="gradient steps, for all phases or one number each"
    )
    parser.add_argument("--out", metavar="DIR", help="the run's folder (default: runs/DATASET-ALGORITHM)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run")
    parser.add_argument("--warm-start", metavar="RUN", help="start from the networks of a finished run")
    parser.add_argument("--no-evaluate", action="store_true", help="train without any environment")
    parser.add_argument("--env", metavar="ID", help="environment to evaluate in (default: the dataset's task)")
    parser.add_argument("--episodes", type=int, default=10, help="episodes per evaluation (default: 10)")
    parser.add_argument(
        "--evaluate-every", type=int, metavar="STEPS", help="steps between evaluations (default: a tenth)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="evaluation processes (default: one per core)")
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0, metavar="S", help="time between checkpoints")
    parser.set_defaults(run=_train)
    return parser


def _train(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.algorithms import find
    from sbac.data import load
    from sbac.training.train import train

    out = args.out or f"runs/{Path(args.dataset).stem}-{args.algorithm}"
    seeds = args.seeds[0] if len(args.seeds) == 1 else args.seeds
    if find(args.algorithm).online:
        return _train_online(args, out, seeds)
    args.interrupted = "continue with --resume"
    run = train(
        load(args.dataset, task=args.task, horizon=args.horizon),
        args.algorithm,
        seeds=seeds,
        preset=args.preset,
        out=out,
        steps=args.steps,
        evaluate=not args.no_evaluate,
        environment=args.env,
        episodes=args.episodes,
        evaluate_every=args.evaluate_every,
        workers=args.workers,
        resume=args.resume,
        overwrite=args.overwrite,
        warm_start=args.warm_start,
        checkpoint_seconds=args.checkpoint_seconds,
        **_options(args.extra),
    )
    return _show(run, out)


def _train_online(args: argparse.Namespace, out: str, seeds: int | list[int]) -> int:
    from sbac.training.online.train import train_online

    if args.warm_start:
        raise UserError(f"--warm-start: not for {args.algorithm}, which learns in an environment")
    if args.steps is not None and len(args.steps) > 1:
        raise UserError(f"steps {args.steps}: {args.algorithm} has one phase; expected one number")
    args.interrupted = "start again with --overwrite"
    run = train_online(
        args.env or args.dataset,
        args.algorithm,
        seeds=seeds,
        preset=args.preset,
        out=out,
        steps=None if args.steps is None else args.steps[0],
        evaluate=not args.no_evaluate,
        episodes=args.episodes,
        evaluate_every=args.evaluate_every,
        workers=args.workers,
        resume=args.resume,
        overwrite=args.overwrite,
        **_options(args.extra),
    )
    return _show(run, out)


def _method_options(args: argparse.Namespace) -> int:
    from sbac.algorithms.listing import options_text

    print(options_text(args.algorithm, args.preset))
    return 0


def _show(run: "Run", out: str) -> int:
    from sbac.report.summary import last_evaluations, render, source, summarise_settings

    print(source(run.record))
    if run.record.evaluation.environment is None:
        print("not evaluated (--env names an environment to do it in)")
    else:
        print(render(summarise_settings(last_evaluations(run.evaluation_rows))))
    count = len(run.policies)
    print(f"{count} {'policy' if count == 1 else 'policies'} in {out}/policies")
    if run.diverged:
        print(f"diverged, their networks are no longer numbers: {', '.join(run.diverged)}", file=sys.stderr)
    return 0


def _options(extra: Sequence[str]) -> dict[str, Any]:
    """`--some-field 1 2` as {"some_field": ["1", "2"]}; a single value stands alone."""
    options: dict[str, list[str]] = {}
    name = None
    for word in extra:
        if word.startswith("--") and len(word) > 2:
            name, *value = word[2:].split("=", 1)
            name = name.replace("-", "_")
            options[name] = value
        elif name is None:
            raise UserError(f"unexpected argument {word!r} (see sbac train --help)")
        else:
            options[name].append(word)
    empty = [name for name, values in options.items() if not values]
    if empty:
        raise UserError(f"--{empty[0].replace('_', '-')}: expected a value")
    return {name: values[0] if len(values) == 1 else values for name, values in options.items()}


# --- methods ------------------------------------------------------------------------------------------------------


def _methods_parser(commands: Any) -> None:
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


# --- evaluate -----------------------------------------------------------------------------------------------------


def _evaluate_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="run a trained run's policies in an environment",
        description="Run the policies of a run, or one policy file, in an environment.",
        epilog="example: sbac evaluate runs/demo --episodes 100",
    )
    parser.add_argument("target", metavar="RUN", help="a run's folder or a policy file")
    parser.add_argument("--env", metavar="ID", help="task, or Gymnasium id (default: the run's task)")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode")
    parser.add_argument("--json", action="store_true", help="one JSON line per policy instead of a table")
    parser.set_defaults(run=_evaluate)


def _evaluate(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from sbac.evaluation.evaluate_run import evaluate_policies, policy_episodes_json
    from sbac.files import finite
    from sbac.report.summary import render, source, summarise_settings
    from sbac.runs import read_record

    rows = evaluate_policies(Path(args.target), args.env, args.episodes, args.seed)
    if args.json:
        print("\n".join(json.dumps(finite(policy_episodes_json(row))) for row in rows))
        return 0
    if Path(args.target).is_dir():
        print(source(read_record(Path(args.target))))
    print(render(summarise_settings(rows)))
    return 0


# --- data ---------------------------------------------------------------------------------------------------------


def _data_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "data",
        help="list, describe, check or make datasets",
        description="Datasets: what is here, what a file holds, what is wrong with it, and how to make one.",
        epilog="example: sbac data info hopper-demo",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    listing = actions.add_parser(
        "list", help="what is here, what can be made, what must be downloaded", epilog="example: sbac data list"
    )
    listing.set_defaults(run=_data_list)
    info = actions.add_parser(
        "info", help="describe a dataset", epilog="example: sbac data info hopper-demo --plot hopper.png"
    )
    info.add_argument("source", metavar="NAME|FILE")
    info.add_argument("--plot", metavar="PNG", help="also draw it")
    info.set_defaults(run=_data_info)
    check = actions.add_parser(
        "check", help="every problem of a file, with its row", epilog="example: sbac data check log.hdf5"
    )
    check.add_argument("file", metavar="FILE")
    check.set_defaults(run=_data_check)
    make = actions.add_parser(
        "make", help="make stand-ins for D4RL's MuJoCo data", epilog="example: sbac data make hopper-medium-made"
    )
    make.add_argument("names", nargs="+", metavar="NAME", help="such as hopper-medium-made, or all")
    make.add_argument("--out", metavar="DIR", help="where to (default: the data folder)")
    make.add_argument("--seed", type=int, default=0)
    make.set_defaults(run=_data_make)


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


# --- bench --------------------------------------------------------------------------------------------------------


def _bench_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure methods on tasks, in cells that can be continued and merged",
        description="Train every method on every task with all its settings and seeds, and keep what was measured in "
        "one small file per cell. Stopped anywhere, the same command continues; parts run on different machines are "
        "merged by copying their folders together or with --merge.",
        epilog="example: sbac bench --tasks hopper-medium-made walker2d-medium-made --algorithms sbac bc td3-bc "
        "--seeds 5 --preset paper --steps 200000 --out results",
    )
    parser.add_argument("--tasks", nargs="+", metavar="DATASET", default=["hopper-demo"], help="default: hopper-demo")
    parser.add_argument(
        "--algorithms",
        nargs="+",
        metavar="NAME[@PRESET]",
        default=["sbac", "sbac-no-w", "sbac-q-pi", "one-step", "bc"],
        help="default: sbac, its ablations, one-step and bc",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[5], metavar="N", help="how many, or which ones")
    parser.add_argument("--preset", default="quick", help="of the methods that have it, the others' being paper")
    parser.add_argument("--steps", nargs="+", type=int, metavar="N", help="gradient steps of every phase, or of each")
    parser.add_argument(
        "--grid", nargs="+", default=[], metavar="NAME.FIELD=V,V", help="settings in place of a method's own four"
    )
    parser.add_argument("--no-grid", action="store_true", help="one setting for each method, its preset's")
    parser.add_argument("--env", metavar="ID", help="environment to evaluate in (default: the dataset's task)")
    parser.add_argument("--out", default="results", metavar="DIR", help="the results folder (default: results)")
    parser.add_argument("--episodes", type=int, default=10, help="of an evaluation during training (default: 10)")
    parser.add_argument("--final-episodes", type=int, default=100, help="of the last policies (default: 100)")
    parser.add_argument("--workers", type=int, metavar="N", help="evaluation processes (default: one per core)")
    parser.add_argument(
        "--together",
        type=int,
        metavar="N",
        help="cells of a method, on data of equal shape, that train in one program (default: 1 on a CPU, else all)",
    )
    parser.add_argument("--part", metavar="I/N", help="only every N-th cell, from the I-th on")
    parser.add_argument("--any-code", action="store_true", help="keep cells made by other versions of the code")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show where every cell stands, and do nothing")
    what.add_argument("--train-only", action="store_true", help="leave the final episodes for later")
    what.add_argument("--evaluate-only", action="store_true", help="play the final episodes of all trained cells")
    what.add_argument("--merge", nargs="+", metavar="DIR", help="take over the cells of other results folders")
    parser.set_defaults(run=_bench)


def _bench(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.bench.final import evaluate_trained
    from sbac.bench.plan import parse_grids, plan
    from sbac.bench.runner import Bench
    from sbac.results.cells import is_results, merge
    from sbac.results.protocol import Protocol

    results = Path(args.out)
    if args.merge:
        print(f"{merge(map(Path, args.merge), results)} cells taken over into {results}")
        return 0
    for name in ("together", "workers", "episodes", "final_episodes"):
        positive(f"--{name.replace('_', '-')}", getattr(args, name))
    protocol = Protocol(episodes=args.episodes, final_episodes=args.final_episodes)
    if args.evaluate_only:
        if not is_results(results):
            raise UserError(f"{results}: not a results folder (it has no cells/)")
        print(f"{evaluate_trained(results, protocol, args.workers)} cells completed in {results}")
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
    bench = Bench(_part(cells, args.part), results, protocol, args.workers, args.any_code, args.together)
    if not args.status:
        args.interrupted = "the same command continues"
        bench.run(evaluate=not args.train_only)
    print(bench.status.view())
    failures = list(bench.status.failures.values())
    if failures:
        raise UserError(f"{len(failures)} of {len(bench.cells)} cells cannot be run; the first: {failures[0]}")
    return 0


def _part(cells: "Sequence[Cell]", part: str | None) -> "Sequence[Cell]":
    """The cells that `--part I/N` names."""
    if part is None:
        return cells
    first, _, count = part.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise UserError(f"--part {part!r}: expected I/N with 1 <= I <= N, such as 1/3")
    return cells[int(first) - 1 :: int(count)]


# --- report and compare -------------------------------------------------------------------------------------------


def _report_parser(commands: Any) -> None:
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


def _compare_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="two runs side by side",
        description="Where the configurations of two runs differ, and how their policies did.",
        epilog="example: sbac compare runs/first runs/second",
    )
    parser.add_argument("first", metavar="RUN")
    parser.add_argument("second", metavar="RUN")
    parser.set_defaults(run=_compare)


def _compare(args: argparse.Namespace) -> int:
    from sbac.report.compare import compare
    from sbac.runs import Run

    print(compare(Run.load(args.first), Run.load(args.second), (args.first, args.second)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
