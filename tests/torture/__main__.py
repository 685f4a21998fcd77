"""Faults on purpose: kills, full disks, dead workers. A table at the end; exit 1 if anything was lost.

What is random comes from a seed that is printed beside a failure.

    python -m tests.torture                                            # all: `make torture`
    python -m tests.torture --kills 4 --only kills
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from tests.torture.kills import full_disk, kills
from tests.torture.neighbours import clock_set_back, dead_parent, dead_worker, forbidden, two_at_once
from tests.torture.processes import METHOD, Outcome, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--full", type=int, default=10, help="times that the disk is full")
    parser.add_argument("--method", default=METHOD, help="what is trained and killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="kinds of faults (default: all)")
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    with tempfile.TemporaryDirectory(prefix="sbac-torture-") as scratch:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{scratch}/xla")
        import sbac.training.train  # noqa: F401 (imported once, for all the processes that are forked)
        from sbac.cli import train  # noqa: F401

        faults: dict[str, Callable[[Path], Outcome]] = {
            "kills": lambda folder: kills(folder, args.kills, args.seed, args.method),
            "full": lambda folder: full_disk(folder, args.full, args.seed),
            "worker": dead_worker,
            "parent": dead_parent,
            "two": two_at_once,
            "forbidden": forbidden,
            "clock": clock_set_back,
        }
        outcomes: list[Outcome] = []
        for name, fault in faults.items():
            if args.only and name not in args.only:
                continue
            folder = Path(scratch) / name
            folder.mkdir()
            folder.chmod(0o755)
            Path(scratch).chmod(0o755)
            began = time.monotonic()
            outcomes.append(fault(folder))
            outcomes[-1].seconds = time.monotonic() - began
            print(f"{outcomes[-1].name}: {outcomes[-1].tried}, {len(outcomes[-1].failures)} failed", flush=True)
    load = " and ".join(f"{number:.1f}" for number in (load_before, os.getloadavg()[0]))
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    print(
        f"\n{date.today()}, seed {args.seed}, {platform.machine()}, {os.cpu_count()} cores, {minutes:.0f} minutes, "
        f"load before and after {load}\n\n{table(outcomes)}"
    )
    return 1 if any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
