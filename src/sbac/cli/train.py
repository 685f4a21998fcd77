"""`sbac train`: learn policies from a dataset, or online in an environment."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbac.cli.core import HELP, Commands, Parser
from sbac.cli.logs import add_log_options, load_log, log_options
from sbac.errors import UserError

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.data.streaming import StreamedLog
    from sbac.runs import Run

SAME_NAME = ("preset", "episodes", "evaluate_every", "workers", "resume", "overwrite")
"""Options of the command that are passed on under their own names."""


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "train",
        help="learn policies from a dataset",
        description="Learn policies from a dataset. Every option of the method is given as --name VALUE ...; several "
        "values make a grid, and the whole grid trains at once. `sbac methods` lists the methods, `sbac train "
        "--algorithm NAME --help` the options of one.",
        epilog="examples: sbac train hopper-demo --seeds 5 --alpha 1 4 --out runs/hopper\n"
        "          sbac train --resume --out runs/hopper",
    )
    data = parser.add_argument_group("the data")
    data.add_argument(
        "dataset",
        nargs="?",
        metavar="DATASET",
        help="name, file, folder, Minari id; for sac and td3 an environment",
    )
    add_log_options(data, env=False)
    data.add_argument("--stream", action="store_true", help="read a log larger than memory in blocks")
    what = parser.add_argument_group("what to train")
    what.add_argument("--algorithm", default="sbac", metavar="NAME", help="which method (default: sbac)")
    what.add_argument("--preset", default="quick", metavar="NAME", help="quick (default), paper, tuned, ...")
    what.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N", help="how many seeds, or which ones")
    what.add_argument("--steps", nargs="+", type=int, metavar="N", help="gradient steps, of all phases or of each")
    what.add_argument("--warm-start", metavar="RUN", help="start from the networks of a finished run")
    folder = parser.add_argument_group("the run's folder")
    folder.add_argument("--out", metavar="DIR", help="where to (default: runs/DATASET-ALGORITHM)")
    folder.add_argument("--resume", action="store_true", help="continue an interrupted run; --out DIR is enough")
    folder.add_argument("--overwrite", action="store_true", help="replace an existing run")
    folder.add_argument("--log", nargs="+", default=[], metavar="NAME", help="also log to: tensorboard, wandb")
    folder.add_argument("--checkpoint-seconds", type=float, default=30.0, metavar="S", help="between checkpoints (30)")
    watch = parser.add_argument_group("evaluation while it trains")
    watch.add_argument("--env", metavar="ID", help="environment of the log, to evaluate in (default: its own)")
    watch.add_argument("--no-evaluate", action="store_true", help="train without any environment")
    watch.add_argument("--episodes", type=int, default=10, metavar="N", help="episodes per evaluation (default: 10)")
    watch.add_argument("--evaluate-every", type=int, metavar="STEPS", help="between evaluations (default: a tenth)")
    watch.add_argument("--workers", type=int, metavar="N", help="evaluation processes (default: one per core)")
    parser.set_defaults(run=_train)


def as_started(words: Sequence[str]) -> list[str]:
    """The words of `sbac train`; where they only say which run to continue, with what it was started with before them.

    An environment whose module would be imported is never taken from a file.
    """
    if not HELP.isdisjoint(words):
        return list(words)
    alone = Parser()
    alone.add_argument("--resume", action="store_true")
    for name in ("--out", "--workers", "--checkpoint-seconds", "--env"):
        alone.add_argument(name)
    asked, others = alone.parse_known_args(words)
    if others or not asked.resume or asked.out is None:
        return list(words)
    from sbac.runs import read_record

    started = read_record(Path(asked.out)).command or []
    if asked.env is None and any(map(names_module, started)):
        raise UserError(f"{asked.out}: it names an environment in a module, which is not imported unasked; add --env")
    return [*started, *words]


def names_module(word: str) -> bool:
    """Whether a word of a recorded command, an option's value or a dataset, may be an environment `module:id`."""
    value = word.partition("=")[2] if word.startswith("--") else word
    return ":" in value


def without_folder(words: Sequence[str]) -> list[str]:
    """The words that say what a run is, without those that say what becomes of its folder."""
    left: list[str] = []
    skipped = False
    for word in words:
        if not (skipped or word in ("--out", "--resume", "--overwrite") or word.startswith("--out=")):
            left.append(word)
        skipped = word == "--out"
    return left


def _train(args: argparse.Namespace) -> int:
    import inspect

    from sbac.algorithms import find
    from sbac.callbacks import loggers
    from sbac.training.online.train import train_online
    from sbac.training.train import train

    if args.dataset is None:
        raise UserError("which data? expected a name, a file or a folder, such as hopper-demo (see sbac train --help)")
    out = f"runs/{Path(args.dataset).stem}-{args.algorithm}" if args.out is None else args.out
    online, options = find(args.algorithm).online, _options(args.extra)
    for name in options.keys() & inspect.signature(train_online if online else train).parameters:
        raise UserError(f"--{name.replace('_', '-')}: not an option of this command (see sbac train --help)")
    asked: dict[str, Any] = {name: getattr(args, name) for name in SAME_NAME} | {
        "seeds": args.seeds[0] if len(args.seeds) == 1 else args.seeds,
        "out": out,
        "evaluate": not args.no_evaluate,
        "callbacks": loggers(args.log, out),
        **options,
    }
    if online:
        steps = _check_online(args)
        replaced = f"the run that was in {out} before is kept" if (Path(out) / "config.json").exists() else None
        args.kept = lambda: replaced or "what was logged is kept; start again with --overwrite"
        return _show(train_online(args.env or args.dataset, args.algorithm, steps=steps, **asked), out)
    args.kept = lambda: _kept(Path(out), args)
    data = _log(args)
    run = train(
        data,
        args.algorithm,
        steps=args.steps,
        environment=args.env,
        warm_start=args.warm_start,
        checkpoint_seconds=args.checkpoint_seconds,
        command=args.started,
        **asked,
    )
    _show(run, out)
    print(f"next: sbac select {out}")
    return 0


def _kept(out: Path, args: argparse.Namespace) -> str:
    """What an interrupted training has left in its folder."""
    from sbac.runs import read_record

    if not (out / "config.json").exists():
        return "nothing was kept, since it had not begun"
    if not args.resume and read_record(out).command != args.started:
        return f"the run that was in {out} before is kept"
    return f"continue with: sbac train --resume --out {out}"


def _log(args: argparse.Namespace) -> "Dataset | StreamedLog":
    from sbac.data.streaming import stream

    if not args.stream:
        return load_log(args.dataset, args)
    if args.horizon is not None:
        raise UserError("--horizon: not with --stream; the log needs timeouts or episode numbers of its own")
    if args.missing != "refuse":
        raise UserError(f"--missing {args.missing}: not with --stream; `sbac data convert` writes a log without gaps")
    if args.continuous:
        raise UserError("--continuous: not with --stream; `sbac data convert` writes actions that are floats")
    said = log_options(args)
    return stream(
        args.dataset,
        task=said.task,
        columns=said.columns,
        action_low=said.action_low,
        action_high=said.action_high,
    )


def _check_online(args: argparse.Namespace) -> int | None:
    """Refuses what is only for methods that learn from a log; the steps that are asked for."""
    if args.warm_start:
        raise UserError(f"--warm-start: not for {args.algorithm}, which learns in an environment")
    if args.steps is not None and len(args.steps) > 1:
        raise UserError(f"steps {args.steps}: {args.algorithm} has one phase; expected one number")
    return None if args.steps is None else args.steps[0]


def method_options(args: argparse.Namespace) -> int:
    from sbac.algorithms.listing import options_text

    print(options_text(args.algorithm, args.preset))
    return 0


def _show(run: "Run", out: str) -> int:
    from sbac.report.summary import outcome, source
    from sbac.text import counted_policies

    print(source(run.record))
    print(outcome(run))
    print(f"{counted_policies(len(run.policies))} in {out}/policies")
    if run.failures:
        failed = [f"{label} ({failure})" for label, failure in run.failures.items()]
        print(f"diverged: {', '.join(failed)}", file=sys.stderr)
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
