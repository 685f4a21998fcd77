"""`sbac learn`: from a log to a policy and an answer in plain words."""

import argparse
import time
from pathlib import Path

from sbac.cli.core import Commands
from sbac.cli.logs import add_log_options, load_log


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "learn",
        help="from a log to a policy, with an answer in plain words",
        description="Learn a policy from a log within some minutes: look at the log, plan, train, judge from the log "
        "alone, and write the policy, a card and a report. No simulator is needed. The answer says which policy, what "
        "it is expected to gain, and what speaks against it; it may be to keep what you have. Interrupted, the same "
        "command goes on.",
        epilog="examples: sbac learn hopper-demo --minutes 5\n"
        "          sbac learn plant.csv --columns rewards=profit --action-high 10",
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="a name, a file, several of them, a folder, a Minari id")
    parser.add_argument("--minutes", type=float, metavar="M", help="how long it may take (default: 15, on a GPU 10)")
    parser.add_argument("--out", metavar="DIR", help="where to (default: runs/LOG)")
    parser.add_argument("--plan", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="moves all seeds (default: 0)")
    parser.add_argument("--ends", metavar="RULE", help='when an episode ends, such as "height < 0.8"')
    parser.add_argument(
        "--watch",
        nargs="+",
        default=[],
        metavar="COLUMN|RULE",
        help="what else is told of the policy: a column, or a bad thing such as 'glucose < 70'",
    )
    add_log_options(parser.add_argument_group("the log"))
    parser.set_defaults(run=_learn)


def _learn(args: argparse.Namespace) -> int:
    began = time.monotonic()  # what is imported takes its time too
    from sbac.learning.learn import Clock, LearnRequest, folder_of, learn_from, plan_of
    from sbac.learning.look import look
    from sbac.learning.plan import plan_text

    out = Path("runs") / Path(args.logs[0]).stem if args.out is None else folder_of(args.out)
    args.kept = lambda: "the same command goes on" if out.exists() else "nothing was kept, since it had not begun"
    request = LearnRequest(args.minutes, out, args.seed, args.ends, args.watch)
    data = load_log(args.logs[0] if len(args.logs) == 1 else args.logs, args)
    if args.plan:
        print(*look(data, args.watch, args.ends), plan_text(plan_of(data, request)), sep="\n")
        return 0
    print(learn_from(data, request, Clock(began)).text)
    return 0
