"""The part of wandb that `sbac.callbacks` uses."""

from collections.abc import Mapping
from typing import Literal

class Error(Exception): ...

class Config:
    def update(self, d: Mapping[str, object]) -> None: ...

class Run:
    config: Config

    def log(self, data: Mapping[str, object]) -> None: ...
    def define_metric(self, name: str, step_metric: str) -> object: ...
    def finish(self) -> None: ...

class Settings:
    def __init__(self, *, console: Literal["off"]) -> None: ...

def init(
    *,
    project: str,
    group: str,
    name: str,
    dir: str,
    mode: Literal["online", "offline", "disabled"] | None,
    config: Mapping[str, object],
    reinit: Literal["create_new"],
    settings: Settings,
) -> Run: ...
