"""Offline reinforcement learning with soft behaviour regularisation, and everything it is compared with."""

import importlib

TYPE_CHECKING = False  # typing's own: to import it here would look for it in the current folder under `python -m sbac`

if TYPE_CHECKING:
    from typing import Any

    from sbac.callbacks import Callback as Callback
    from sbac.data import Dataset as Dataset
    from sbac.data import load as load
    from sbac.data.streaming import stream as stream
    from sbac.errors import UserError as UserError
    from sbac.evaluation.rollout import evaluate as evaluate
    from sbac.exporting import export as export
    from sbac.learning.answer import Answer as Answer
    from sbac.learning.learn import learn as learn
    from sbac.policy import Policy as Policy
    from sbac.policy.committee import committee as committee
    from sbac.ratio import visitation_ratio as visitation_ratio
    from sbac.report.curves import plot as plot
    from sbac.runs import Run as Run
    from sbac.training.online.train import train_online as train_online
    from sbac.training.train import train as train
    from sbac.trust.choice import Choice as Choice
    from sbac.trust.choosing import select as select
    from sbac.trust.estimates import fqe as fqe

    __version__: str

# Loaded on first use, so that `import sbac` and `sbac --help` do not wait for JAX.
_HOMES = {
    "Callback": "sbac.callbacks",
    "Dataset": "sbac.data",
    "load": "sbac.data",
    "stream": "sbac.data.streaming",
    "UserError": "sbac.errors",
    "evaluate": "sbac.evaluation.rollout",
    "export": "sbac.exporting",
    "Answer": "sbac.learning.answer",
    "learn": "sbac.learning.learn",
    "Policy": "sbac.policy",
    "committee": "sbac.policy.committee",
    "visitation_ratio": "sbac.ratio",
    "train_online": "sbac.training.online.train",
    "plot": "sbac.report.curves",
    "Run": "sbac.runs",
    "train": "sbac.training.train",
    "fqe": "sbac.trust.estimates",
    "select": "sbac.trust.choosing",
    "Choice": "sbac.trust.choice",
}
__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        value = _installed_version()
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'sbac' has no attribute {name!r}")
    globals()[name] = value
    return value


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sbac")
    except PackageNotFoundError:  # sources that are on the path and not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(__all__)
