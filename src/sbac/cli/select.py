"""`sbac select`: which policy of a run to take, from the log alone or with a few real episodes."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sbac.cli.core import Commands
from sbac.cli.logs import add_log_options, load_log, tell_notes
from sbac.errors import UserError

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.runs import Run
    from sbac.trust.choice import Choice, ChoiceRecord


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "select",
        help="choose a policy of one or several runs without an environment",
        description="Rank the policies of all runs from the log alone: estimated value, gain over the log with a 90 % "
        "interval, and what speaks against an estimate. With --try, a few real episodes decide among the best; they "
        "are kept in RUN/trials.jsonl, and trying goes on from there. Of several runs, the first one's folder holds "
        "both, and its preset is taken where the estimates cannot tell.",
        epilog="examples: sbac select runs/demo\n          sbac select runs/sbac runs/iql\n"
        "          sbac select runs/demo --try 20 --env hopper-medium-v2\n"
        "          sbac select runs/mine --watch 'glucose < 70' --ends 'glucose < 40'",
    )
    parser.add_argument("targets", nargs="+", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--data", nargs="+", metavar="D", help="the log to judge on (default: the one that the run learned from)"
    )
    parser.add_argument("--effort", metavar="NAME", help="quick or full (default: quick for runs of preset quick)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the estimates (default: 0)")
    parser.add_argument(
        "--beside",
        nargs="*",
        default=["model"],
        metavar="NAME",
        help="estimators beside fitted Q evaluation (default: model, a learned one; none is faster and gives fewer "
        "warnings)",
    )
    parser.add_argument(
        "--watch",
        nargs="+",
        default=[],
        metavar="COLUMN|RULE",
        help="evaluate these beside the reward: a column, a bad thing such as 'glucose < 70', or end (episodes that "
        "end early, watched wherever a log has ends)",
    )
    parser.add_argument("--ends", metavar="RULE", help="when an episode ends: 'height < 0.8 or abs(angle) > 1'")
    parser.add_argument("--try", type=int, metavar="N", dest="tries", help="play N episodes, and let them decide")
    parser.add_argument("--env", metavar="ID", help="where to play them (default: the run's task)")
    parser.add_argument("--json", action="store_true", help="one JSON line per policy instead of a table")
    add_log_options(parser.add_argument_group("about the log of --data"), env=False)
    parser.set_defaults(run=_select)


def _select(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sbac.runs import Run
    from sbac.trust.choice import write_choice

    if args.env is not None and args.tries is None:
        raise UserError("--env: only read with --try; the choice itself needs no environment")
    runs = [Run.load(Path(target)) for target in args.targets]
    args.kept = lambda: (
        f"{args.targets[0]} is as it was" + ("" if args.tries is None else ", with the episodes that were played")
    )
    record = None if args.tries is None else decided_last(runs[0])  # trying goes on where it stopped
    if record is None:
        data = None if args.data is None else load_log(args.data, args)
        tell_notes(note for run in runs for note in run.record.notes or [])
        choice = choose(runs, data, args.effort, args.seed, args.beside, args.watch, args.ends)
        show(choice, args.json)  # before it is written: where that fails, the estimates are not lost
        record = choice.record
        write_choice(Path(args.targets[0]), record, choice.clone)
    if args.tries is not None:
        _try(runs[0], record, args.tries, args.env)
    if not args.json:
        print(f"next: sbac report {args.targets[0]} --card; sbac export {args.targets[0]} --out policy.onnx")
    return 0


def choose(
    runs: "Sequence[Run]",
    data: "Dataset | str | None" = None,
    effort: str | None = None,
    seed: int = 0,
    beside: Sequence[str] = ("model",),
    watch: Sequence[str] = (),
    ends: str | None = None,
) -> "Choice":
    """Selects with a progress bar."""
    from sbac.progress import Progress
    from sbac.trust.choosing import select

    with Progress() as bar:
        return select(
            runs, data, effort=effort, seed=seed, beside=beside, progress=bar.reach_in, watch=watch, ends=ends
        )


def decided_last(run: "Run") -> "ChoiceRecord | None":
    """What the run's folder says which policy is taken."""
    from sbac.trust.choice import read_choice

    assert run.folder is not None
    return read_choice(run.folder, run.policies)


def show(choice: "Choice", as_lines: bool = False) -> None:
    """Prints the table, the choice and what speaks against it."""
    import json

    from sbac.trust.describe import choice_text

    if as_lines:
        print("\n".join(json.dumps(row) for row in (choice.log_row, *choice.table)))
    else:
        print(choice_text(choice))


def _try(run: "Run", choice: "ChoiceRecord", tries: int, environment: str | None) -> None:
    from sbac.evaluation.evaluate_run import own_environment
    from sbac.text import counted
    from sbac.trust.choice import policy_of, write_choice
    from sbac.trust.describe import trials_text
    from sbac.trust.trials import try_policies

    assert run.folder is not None
    where = environment or own_environment(run.folder, run.policies[0])
    if where is None:
        raise UserError(f"{run.folder}: no environment is known for it; name one with --env")
    policies = {each.label: policy_of(run, each) for each in choice.candidates if each.value is not None}
    ranked = list(policies)
    tried = try_policies(run.folder, policies, ranked, where, tries)
    print(trials_text(tried, ranked))
    reason = f"the largest mean return in {counted(tried.episodes, 'real episode')}"
    write_choice(run.folder, replace(choice, label=tried.label, decided=True, reason=reason))
