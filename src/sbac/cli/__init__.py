"""The command line: parses, calls the API, prints. Nothing heavy is imported before it is needed.

Every command has a file here, with a function `add` that declares its options, and stands in `GROUPS`.
"""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from select import POLLERR, poll

from sbac import interrupts
from sbac.cli import bench, compare, data, evaluate, export, learn, methods, report, select, train
from sbac.cli.core import HELP, Commands, Parser
from sbac.errors import UNSHOWABLE, UserError, shown

GROUPS = {
    "learn": (learn, train, select, export, methods, evaluate),
    "data": (data,),
    "measure and read": (report, compare, bench),
}
"""The commands as `sbac --help` lists them."""
REQUIRED = frozenset(
    ("jax", "jaxlib", "jaxtyping", "equinox", "optax", "numpy", "scipy")
    + ("gymnasium", "mujoco", "h5py", "safetensors", "rich", "matplotlib")
)
"""What sbac is installed with, unless it was installed without its requirements in order to act alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, that of this process where no arguments are given; its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    args = argparse.Namespace(kept=str, extra=[])

    def last_words(number: int) -> None:
        ended = "terminated" if number == signal.SIGTERM else "interrupted"
        print("; ".join(filter(None, [ended, args.kept()])), file=sys.stderr)

    return interrupts.guarded(lambda: run(words, args), last_words, own_process=arguments is None)


def run(words: Sequence[str], args: argparse.Namespace) -> int:
    """Runs a command; bad input ends with one line on stderr and exit code 2. `args` is filled as it is parsed."""
    try:
        parser = build_parser()
        for word in words:
            if UNSHOWABLE.search(word):
                raise UserError(f"{word!r}: expected a word in UTF-8 without control characters")
        if words[:1] == ["train"]:  # a method's options are not declared here, and take all values that follow them
            started = train.as_started(words[1:])
            declared, args.extra = parser.below["train"].split(started)
            args.started = train.without_folder(started)
            words = ["train", *declared]
            if any(word.split("=")[0] == "--algorithm" for word in words) and not HELP.isdisjoint(words):
                parser.parse_args([word for word in words if word not in HELP], args)
                return train.method_options(args)
        parser.parse_args(words, args)
        return args.run(args) or 0
    except UserError as error:
        print(f"error: {shown(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in REQUIRED:
            raise
        print(f"error: this command needs the package {package}: pip install sbac", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if not reader_has_left():
            raise  # it was another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            print(f"error: {shown(str(error.filename or 'writing'))}: {error.strerror}", file=sys.stderr)
            return 2
        raise


def reader_has_left() -> bool:
    """Whether who read our output has read enough, as `head` does."""
    watched = poll()
    watched.register(sys.stdout.fileno(), 0)
    return any(event & POLLERR for _, event in watched.poll(0))


class ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for, which takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from sbac import __version__

        print(f"sbac {__version__}")
        parser.exit()


def build_parser() -> Parser:
    """The parser of everything, with the commands below it."""
    parser = Parser(prog="sbac", epilog="example: sbac learn hopper-demo --minutes 5")
    parser.add_argument("--version", action=ShowVersion, nargs=0, help=argparse.SUPPRESS)
    commands = Commands(parser, "COMMAND")
    for title, group in GROUPS.items():
        commands.group(title)
        for command in group:
            command.add(commands)
    commands.describe(
        "Offline reinforcement learning: policies from a log of decisions.\n"
        "sbac COMMAND --help describes a command; sbac --version says the version."
    )
    return parser
