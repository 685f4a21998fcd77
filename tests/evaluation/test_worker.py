"""Evaluation workers: one that dies is replaced, and its episodes are played again, to the same bits."""

import os
import textwrap
from pathlib import Path

import pytest
from tests.small import linear_policy

from sbac.errors import UserError
from sbac.evaluation.worker import Pool

DYING = """
    import os, signal
    import gymnasium
    from gymnasium.envs.classic_control.pendulum import PendulumEnv

    class Dying(PendulumEnv):
        def step(self, action):
            deaths = os.environ["DEATHS"]
            if os.path.getsize(deaths) < int(os.environ["MOST"]):
                with open(deaths, "a") as file:
                    file.write(".")
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step(action)

    gymnasium.register("Dying-v0", Dying, max_episode_steps=20)
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "dying.py").write_text(textwrap.dedent(DYING))
    (tmp_path / "deaths").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DEATHS", str(tmp_path / "deaths"))
    linear_policy().save(tmp_path / "policy")
    return tmp_path / "policy"


def test_the_episodes_of_a_worker_that_died_are_played_again(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOST", "2")
    with Pool(1) as pool:
        found = pool.submit(policy, "dying:Dying-v0", 3, 5).result(120)
    assert pool.started == 3 and os.path.getsize(os.environ["DEATHS"]) == 2
    monkeypatch.setenv("MOST", "0")
    with Pool(1) as pool:
        assert pool.submit(policy, "dying:Dying-v0", 3, 5).result(120) == found
        assert pool.started == 1


def test_after_three_deaths_it_is_given_up_in_one_line(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOST", "99")
    with Pool(1) as pool, pytest.raises(UserError, match="was ended by SIGKILL") as raised:
        pool.submit(policy, "dying:Dying-v0", 3, 5).result(120)
    assert pool.started == 3 and "\n" not in str(raised.value)
