"""OGBench's npz arrays. `terminals` ends a trajectory, and `masks` is 0 where the task is done and nothing follows."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from sbac.data.formats.log import Column, Log, Rows, with_flags
from sbac.errors import UserError


def fields(names: Collection[str], chosen: Mapping[str, list[str]], path: Path) -> dict[str, list[str]]:
    """The arrays of each field; `masks` beside them if the file has OGBench's layout."""
    if {"observations", "actions", "terminals", "qpos"} <= set(names) and "rewards" not in chosen:
        raise UserError(
            f"{path}: rewards: missing; this OGBench file has no task. Load it with ogbench.make_env_and_datasets and "
            "the name of a singletask environment, and save the arrays that it gives (numpy.savez)"
        )
    own = "masks" in names and "terminals" in names and "timeouts" not in chosen
    return {**chosen, "masks": ["masks"]} if own else dict(chosen)


def with_masks(log: Log) -> Log:
    """The same log with the ends of trajectories as time limits, and terminals from the masks."""
    if "masks" not in log.columns:
        return log

    def flags(block: Rows) -> Rows:
        done = block["masks"].reshape(-1) == 0
        return {"terminals": done, "timeouts": (block["terminals"].reshape(-1) != 0) & ~done}

    rows = log.columns["terminals"].shape[:1]
    return with_flags(log, "masks", {name: Column(rows, np.dtype(bool)) for name in ("terminals", "timeouts")}, flags)
