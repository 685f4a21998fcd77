"""A process that steps the environments of one online run."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple, NoReturn

import numpy as np

from sbac.environments.lanes import acting, open_lanes, uniform
from sbac.policy import Floats


class Request(NamedTuple):
    """A round asked of a collector: steps of every instance, by a policy or (without arrays) uniform."""

    steps: int
    kind: str
    arrays: Mapping[str, Floats] | None
    noise: float


def collect(connection: Connection, env_id: str, instances: int, seed: Sequence[int]) -> NoReturn:
    """Answers requests with rows (s, a, r, terminal, s'), until the other side ends in whatever way."""
    rng = np.random.default_rng(seed)
    lanes = open_lanes(env_id, instances, seed)
    while True:
        request: Request = connection.recv()
        act = uniform(lanes.actions, rng)
        if request.arrays is not None:
            act = acting(request.kind, request.arrays, rng, request.noise)
        rounds: list[Floats] = []
        for _ in range(request.steps):
            s, a, r, after, terminals, _ = lanes.step(act(lanes.observations))
            rounds.append(np.concatenate([s, a, r[:, None], terminals[:, None].astype(np.float32), after], axis=1))
        connection.send(np.concatenate(rounds))


if __name__ == "__main__":
    handle, env_id, instances, *seed = sys.argv[1:]
    with contextlib.suppress(EOFError, ConnectionError):
        collect(Connection(int(handle)), env_id, int(instances), [int(s) for s in seed])
