"""Evaluation beside training: worker processes that read policy files and answer with returns. They never load JAX."""

import dataclasses
import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sbac.errors import UserError, positive
from sbac.evaluation.rollout import Evaluator
from sbac.policy import Policy
from sbac.workers import Message, Progress, WorkerPool, serve


class Pool(WorkerPool[dict[str, Any]]):
    def __init__(self, workers: int | None = None, expected: int | None = None) -> None:
        """None: one for each core, or for each of the `expected` policies if they are fewer."""
        positive("workers", workers)
        cores = os.cpu_count() or 1
        count = workers or (cores if expected is None else max(1, min(cores, expected)))
        super().__init__("sbac.evaluation.worker", count, read=lambda answer: dict(answer.fields))

    def submit(self, policy: Path, environment: str, episodes: int, seed: int) -> "Future[dict[str, Any]]":
        """Asks for an evaluation; the answer has `returns`, `lengths` and `scores`."""
        request = {"policy": str(policy), "environment": environment, "episodes": episodes, "seed": seed}
        return self.ask(Message(request))


def play(evaluator: Evaluator, path: str | Path, episodes: int, seed: int) -> dict[str, Any]:
    """The episodes of the policy in a file, as an answer has them: fields of `Episodes`."""
    policy = Policy.load(path, diverged=True)
    # Unchecked: a simulation that breaks down must not end the training whose policy it plays.
    played = evaluator(policy.unchecked, episodes, seed, policy.config.get("discount"))
    return {**dataclasses.asdict(played), "policy": policy.hash}


class EvaluationWorker:
    """Keeps an evaluator for each environment that it was asked for."""

    def __init__(self) -> None:
        self._evaluators: dict[str, Evaluator] = {}

    def __call__(self, request: Message, progress: Progress) -> Message:
        name = request.fields["environment"]
        try:
            if name not in self._evaluators:
                self._evaluators[name] = Evaluator(name)
            asked = request.fields
            answer = play(self._evaluators[name], asked["policy"], asked["episodes"], asked["seed"])
        except UserError:
            raise
        except Exception as error:  # most likely of the environment, which is the user's
            raise UserError(f"{name}: {type(error).__name__}: {error}") from error
        return Message(answer)


if __name__ == "__main__":
    os.nice(5)  # training comes first
    serve(EvaluationWorker())
