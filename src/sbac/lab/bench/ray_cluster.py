"""Ray as the cluster of a bench. The only module that knows of Ray.

A task takes one GPU with its share of the node's cores, or, where there are no GPUs, all the cores of a node: a
training and its evaluations use what a machine has. The function that a node runs belongs to the installed package, so
Ray sends its name; what travels is bytes.
"""

import importlib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from sbac.errors import UserError
from sbac.lab.bench.node import run_task

Ray = Any
"""The module; Ray's own annotations leave most of it unknown."""


class Lost(Exception):
    """A task whose node or process is gone."""


class RayCluster:
    """The nodes of a Ray cluster that are alive when the bench begins. A ticket stands for a task that was sent."""

    devices: int
    """How many tasks run at a time."""
    has_accelerators: bool
    """Whether a device is a GPU."""

    def __init__(self, ray: Ray) -> None:
        self._ray = ray
        nodes = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
        self.has_accelerators, cores, self.devices = task_shape(nodes)
        gpus = 1 if self.has_accelerators else 0
        # Ray would start a lost task again without a word; a bench says so and counts.
        self._run = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=0)(run_task)

    def store(self, data: bytes) -> object:
        """Keeps bytes for the tasks that read them; returns what stands for them in `send`."""
        return self._ray.put(data)

    def send(self, task: bytes, stored: Sequence[object]) -> object:
        """Has `run_task` run on some node; returns a ticket."""
        return self._run.remote(task, *stored)

    def wait(self, tickets: Sequence[object], seconds: float) -> list[object]:
        """A ticket that is answered or lost, or none after this time."""
        return self._ray.wait(list(tickets), num_returns=1, timeout=seconds)[0]

    def answer(self, ticket: object) -> bytes:
        """The answer; raises Lost if there will be none."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except errors.RayTaskError:
            raise  # a fault in the code that no other node would be without
        except errors.RayError as error:
            raise Lost(type(error).__name__) from None


def task_shape(nodes: Sequence[dict[str, float]]) -> tuple[bool, int, int]:
    """Whether tasks take a GPU, how many cores each takes, and how many of them run at a time."""
    gpus = [(int(node["GPU"]), int(node.get("CPU", 0))) for node in nodes if node.get("GPU", 0) >= 1]
    if gpus:
        cores = min(cpus // count for count, cpus in gpus)
        return True, cores, sum(count for count, _ in gpus)
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    if not cpus:
        raise UserError("--on ray: no node of the cluster offers a CPU or a GPU")
    cores = min(cpus)
    return False, cores, sum(count // cores for count in cpus)


@contextmanager
def connected(address: str | None) -> Generator[RayCluster, None, None]:
    """The cluster at an address; without one the cluster of this machine, which is started if there is none."""
    try:
        ray: Ray = importlib.import_module("ray")
    except ImportError:
        raise UserError("--on ray: Ray is not installed; install it with: pip install 'sbac[ray]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=address, include_dashboard=None if address else False, log_to_driver=False, logging_level="error"
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        where = f"--address {address}" if address else "--on ray"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{where}: no Ray cluster can be reached ({reason})") from None
    try:
        yield RayCluster(ray)
    finally:
        ray.shutdown()
