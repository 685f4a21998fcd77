"""What is asked of a training in an environment."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sbac.environments.opening import Spaces, spaces_of
from sbac.environments.tasks import is_task
from sbac.errors import UserError, positive
from sbac.runs import Rounds, RunRecord
from sbac.training.grid import Member
from sbac.training.request import Request


@dataclass(frozen=True, kw_only=True, eq=False)
class OnlineRequest(Request):
    """A training in an environment: a task's name or a Gymnasium id."""

    environment: str
    instances: int = 1
    """Copies of the environment that a run steps side by side."""
    round_steps: int = 50
    """Environment steps of a run in a round, and updates after it."""

    def __post_init__(self) -> None:
        if not self.method.online:
            raise UserError(f"{self.algorithm} learns from a log and not in an environment: use sbac.train")
        positive("instances", self.instances)
        positive("round_steps", self.round_steps)
        if self.round_steps % self.instances:
            raise UserError(f"round_steps {self.round_steps}: expected a multiple of instances, {self.instances}")
        _ = self.runs, self.spaces  # each raises where it cannot be had

    @cached_property
    def runs(self) -> list[Member]:
        return self.grid.members(self.method)

    @cached_property
    def spaces(self) -> Spaces:
        spaces = spaces_of(self.environment)
        if not (np.isfinite(spaces.action_low).all() and np.isfinite(spaces.action_high).all()):
            raise UserError(f"environment {spaces.environment}: expected actions with finite bounds")
        return spaces

    @cached_property
    def record(self) -> RunRecord:
        watched_in = self.environment if self.evaluating.evaluate else None
        return replace(
            self.describe(self.runs, self.evaluating.record(watched_in)),
            environment=self.environment,
            task=self.environment if is_task(self.environment) else None,
            rounds=Rounds(self.instances, self.round_steps),
        )
