"""Small logs with every way an episode can end."""

from typing import Any

import numpy as np


def make_log(lengths: list[int], ends: list[str], seed: int = 0) -> dict[str, Any]:
    """Episodes of the given lengths, each ended by "terminal", "timeout" or "nothing" (the last one only).

    The first feature of an observation is its episode, the second its step: any s' can be told where it comes from.
    """
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    observations = rng.normal(size=(rows, 4)).astype(np.float32)
    observations[:, 0] = np.repeat(np.arange(len(lengths)), lengths)
    observations[:, 1] = np.concatenate([np.arange(length) for length in lengths])
    last = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(rows, bool), np.zeros(rows, bool)
    terminals[last] = [end == "terminal" for end in ends]
    timeouts[last] = [end == "timeout" for end in ends]
    following = np.empty_like(observations)
    following[:-1] = observations[1:]
    following[last] = rng.normal(size=(len(lengths), 4))
    following[last, 0], following[last, 1] = np.arange(len(lengths)), lengths
    return {
        "observations": observations,
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
        "next_observations": following,
    }
