"""`sbac train`: learn policies from a dataset, or online in an environment."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sbac.cli.core import Commands, Parser
from sbac.errors import UserError

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.data.streaming import StreamedLog
    from sbac.runs import Run


def add(commands: Commands) -> Parser:
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
    parser.add_argument("--stream", action="store_true", help="read a log that does not fit into memory in blocks")
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
    from sbac.training.train import train

    out = args.out or f"runs/{Path(args.dataset).stem}-{args.algorithm}"
    seeds = args.seeds[0] if len(args.seeds) == 1 else args.seeds
    if find(args.algorithm).online:
        return _train_online(args, out, seeds)
    args.interrupted = "continue with --resume"
    run = train(
        _log(args),
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


def _log(args: argparse.Namespace) -> "Dataset | StreamedLog":
    from sbac.data import load
    from sbac.data.streaming import stream

    if not args.stream:
        return load(args.dataset, task=args.task, horizon=args.horizon)
    if args.horizon is not None:
        raise UserError("--horizon: not with --stream; the log needs timeouts or episode numbers of its own")
    return stream(args.dataset, task=args.task)


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


def method_options(args: argparse.Namespace) -> int:
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
