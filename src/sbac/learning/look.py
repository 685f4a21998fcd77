"""The first look at a log: what it holds, and whether anything can be learned from it."""

from collections.abc import Sequence

import numpy as np

from sbac.data import Dataset
from sbac.errors import UserError
from sbac.text import counted
from sbac.trust.ending import end_rule
from sbac.trust.watching import watched_things


def look(data: Dataset, watch: Sequence[str] = (), ends: str | None = None) -> list[str]:
    """What the log holds, and what follows from it for the answer, a line for each thing.

    A log that shows no difference between good and bad is refused, and so is a rule that it cannot be asked.
    """
    watched_things(data, watch)
    if ends is not None:
        end_rule(data, ends)
    observations, actions = data.observations.shape[1], data.actions.shape[1]
    lengths = np.diff(data.episodes, axis=1)[:, 0]
    lines = [
        f"{data.name}: {len(data):,} rows, {counted(len(data.episodes), 'episode')} of {lengths.mean():,.0f} steps on "
        f"average, {counted(observations, 'observation')}, {counted(actions, 'action')}, mean return "
        f"{data.returns.mean():.4g}"
    ]
    if not data.has_next_action.any():
        raise UserError(
            f"{data.name}: no episode has two rows; expected decisions that follow each other; if each row is one "
            "of its own, such as an offer to a customer, name a column of ones with --columns terminals=NAME"
        )
    if (data.actions.min(0) == data.actions.max(0)).all():
        raise UserError(f"{data.name}: every row has the same action; expected a log in which something was tried")
    if data.rewards.min() == data.rewards.max():
        reward = float(data.rewards[0])
        if reward == 0 or not data.terminals.any():
            raise UserError(
                f"{data.name}: the reward is {reward:g} in every row"
                + ("" if reward == 0 else " and no episode ends by itself")
                + "; expected rewards that differ: name their column with --columns rewards=NAME"
            )
        aim = "to last longer" if reward > 0 else "to end sooner"
        lines.append(f"The reward is {reward:g} in every row: the aim is {aim}")
    return lines
