"""Worker processes: fresh interpreters, so that a user's script needs no __main__ guard, asked through a pipe."""

import contextlib
import os
import signal
import subprocess
import sys

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def start(module: str) -> "subprocess.Popen[str]":
    """Runs a module that reads requests from its input, with one thread; a Ctrl-C is not for it but for who asks."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
        start_new_session=True,
    )


def kill(process: "subprocess.Popen[str]") -> None:
    """Ends a worker with all that it has started: environments and what they import may have processes of their own."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
