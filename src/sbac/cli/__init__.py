"""The command line: parses, calls the API, prints. Nothing heavy is imported before it is needed.

Every command has a file here, with a function `add` that declares its options, and a line in `build_parsers`.
"""

import argparse
import errno
import os
import select
import sys
from collections.abc import Sequence

from sbac import interrupts
from sbac.cli import bench, compare, data, evaluate, methods, report, train
from sbac.cli.core import HELP, Parser
from sbac.errors import UserError


@interrupts.remembered()
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; bad input ends with one line on stderr and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = argparse.Namespace(interrupted="")
    try:
        parser, train_parser = build_parsers()
        extra: list[str] = []
        if words[:1] == ["train"]:  # a method's options are not declared here, and take all values that follow them
            known_words, extra = train_parser.split(words[1:])
            words = ["train", *known_words]
            if any(word.split("=")[0] == "--algorithm" for word in words) and not HELP.isdisjoint(words):
                parser.parse_args([word for word in words if word not in HELP], known)
                return train.method_options(known)
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
    from sbac import __version__

    parser = Parser(
        prog="sbac",
        description="Offline reinforcement learning: policies from a log of decisions.",
        epilog="example: sbac train hopper-demo --alpha 0.5 2 --seeds 5 --out runs/demo",
    )
    parser.add_argument("--version", action="version", version=f"sbac {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    train_parser = train.add(commands)
    for command in (methods, evaluate, data, bench, report, compare):
        command.add(commands)
    return parser, train_parser
