"""Logs to write and read, and a place without any data of the user's."""

from pathlib import Path
from typing import Any

import pytest

from tests.data.logs import make_log

HERE = Path(__file__).parent


@pytest.fixture
def log() -> dict[str, Any]:
    return make_log([10, 1, 7, 20, 12], ["terminal", "timeout", "terminal", "timeout", "nothing"])


@pytest.fixture
def plain(log: dict[str, Any]) -> dict[str, Any]:
    """The same without stored next observations."""
    return {name: column for name, column in log.items() if name != "next_observations"}


@pytest.fixture
def minari_root(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(HERE / "minari"))
    return HERE / "minari"


@pytest.fixture(autouse=True)
def no_data_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Names are looked up in an empty place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SBAC_DATA", raising=False)
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path / "d4rl"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
