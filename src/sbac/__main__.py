"""`python -m sbac`: the command line. Python puts the current folder first; nothing is imported from there."""

import sys


def start() -> int:
    if not sys.flags.safe_path:
        del sys.path[0]
    from sbac.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
