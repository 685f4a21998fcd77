"""Offline reinforcement learning with soft behaviour regularisation, and everything it is compared with."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbac.data import Dataset as Dataset
    from sbac.data import load as load
    from sbac.data.streaming import stream as stream
    from sbac.errors import UserError as UserError
    from sbac.evaluation.rollout import evaluate as evaluate
    from sbac.policy import Policy as Policy
    from sbac.ratio import visitation_ratio as visitation_ratio
    from sbac.runs import Run as Run
    from sbac.training.online.train import train_online as train_online
    from sbac.training.train import train as train

__version__ = "0.1.0"

# Loaded on first use, so that `import sbac` and `sbac --help` do not wait for JAX.
_HOMES = {
    "Dataset": "sbac.data",
    "load": "sbac.data",
    "stream": "sbac.data.streaming",
    "UserError": "sbac.errors",
    "evaluate": "sbac.evaluation.rollout",
    "Policy": "sbac.policy",
    "visitation_ratio": "sbac.ratio",
    "train_online": "sbac.training.online.train",
    "Run": "sbac.runs",
    "train": "sbac.training.train",
}
__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sbac' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
