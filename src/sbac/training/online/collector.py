"""A worker that steps the environments of one online run, and the pool of these workers.

The first request opens the environments, which stay open. Every other request is a round: so many steps of every
instance, with the policy whose arrays it carries, or with uniform actions where it carries none.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from sbac.environments.lanes import Lanes, acting, open_lanes, uniform
from sbac.files import Arrays
from sbac.policy import Floats
from sbac.workers import Message, Progress, WorkerPool, serve


class Collectors(WorkerPool[Floats]):
    """A worker for every run, which keeps its environments between rounds."""

    def __init__(self, environment: str, seeds: Sequence[int], instances: int, steps: int) -> None:
        """`steps` of every run make a round."""
        super().__init__("sbac.training.online.collector", len(seeds), read=_rows, pinned=True)
        self._each = steps // instances
        self._opened = [
            self.ask(Message(vars(Opening(environment, instances, (seed, i, 0)))), worker=i)
            for i, seed in enumerate(seeds)
        ]
        self._rounds: list[Future[Floats]] = []

    def start_round(self, kind: str, policies: Sequence[Arrays] | None, noise: Sequence[float]) -> None:
        """Starts a round in every worker; without policies the actions are uniform."""
        requests = [{"steps": self._each, "kind": kind, "noise": float(deviation)} for deviation in noise]
        self._rounds = [
            self.ask(Message(request, {} if policies is None else policies[i]), worker=i)
            for i, request in enumerate(requests)
        ]

    def finish_round(self) -> list[Floats]:
        """The rows (s, a, r, terminal, s') of the round that was started, for each run."""
        for opened in self._opened:
            opened.result()  # raises the error of an environment that did not open
        return [rows.result() for rows in self._rounds]


def _rows(answer: Message) -> Floats:
    return answer.arrays.get("rows", np.zeros((0, 0), np.float32))


@dataclass(frozen=True)
class Opening:
    """The first request of a run: its environments."""

    environment: str
    instances: int
    seed: Sequence[int]


class CollectorWorker:
    """Holds the environments of one run."""

    def __init__(self) -> None:
        self._lanes: Lanes | None = None
        self._rng = np.random.default_rng()

    def __call__(self, request: Message, progress: Progress) -> Message:
        if self._lanes is None:
            opening = Opening(**request.fields)
            self._rng = np.random.default_rng(opening.seed)
            self._lanes = open_lanes(opening.environment, opening.instances, opening.seed)
            return Message({})
        return Message({}, {"rows": self._collect(self._lanes, request)})

    def _collect(self, lanes: Lanes, request: Message) -> Floats:
        act = uniform(lanes.actions, self._rng)
        if request.arrays:
            act = acting(request.fields["kind"], request.arrays, self._rng, request.fields["noise"])
        rounds: list[Floats] = []
        for _ in range(request.fields["steps"]):
            s, a, r, after, terminals, _ = lanes.step(act(lanes.observations))
            rounds.append(np.concatenate([s, a, r[:, None], terminals[:, None].astype(np.float32), after], axis=1))
        return np.concatenate(rounds)


if __name__ == "__main__":
    serve(CollectorWorker())
