"""The worlds' parts against numbers worked out by hand, in a world that needs no simulator."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from gymnasium.spaces import Box

import sbac
from sbac.errors import UserError
from sbac.lab.worlds import WORLDS
from sbac.lab.worlds.__main__ import judged, logged, rates, table, truth
from sbac.lab.worlds.world import World, package, write_csv, write_log
from sbac.policy import Floats
from sbac.trust.choice import NUMBERS, CandidateRecord, ChoiceRecord, LogRecord, write_choice


class Tank:
    """A tank that is filled by the action, five steps an episode; above 4 it overflows. The reward is its level."""

    observation_space: Any = Box(-np.inf, np.inf, (2,))
    action_space: Any = Box(0.0, 2.0, (1,))

    def reset(self, *, seed: int | None = None) -> tuple[Floats, Mapping[str, object]]:
        self.level, self.left = float((seed or 0) % 2), 5
        return self._seen(), {}

    def step(self, action: Floats, /) -> tuple[Floats, float, bool, bool, Mapping[str, object]]:
        self.level, self.left = self.level + float(action[0]), self.left - 1
        over = self.level > 4
        return self._seen(), self.level, over, self.left == 0 and not over, {}

    def close(self) -> None: ...

    def _seen(self) -> Floats:
        return np.array([self.level, self.left])


def filling(observations: Floats) -> Floats:
    return np.full((len(observations), 1), 0.5)


TANK = World(
    name="tank",
    episode="shift",
    end="overflow",
    observations=("level [m]", "left"),
    actions=("inflow [l/s]",),
    low=(0.0,),
    high=(2.0,),
    steps=5,
    make=Tank,
    writer=lambda rng: lambda observations: rng.uniform(0.0, 3.0, (len(observations), 1)),
    other=filling,
    episodes=40,
    watched=("`level [m]` > 2",),
    gaps=6,
)


@pytest.mark.parametrize("world", WORLDS.values(), ids=[*WORLDS])
def test_a_world_agrees_with_itself(world: World) -> None:
    observations = np.abs(np.random.default_rng(0).normal(100, 30, (7, len(world.observations))))
    for controller in (world.writer(np.random.default_rng(1)), world.other):
        actions = controller(observations)
        assert actions.shape == (7, len(world.actions)) and np.isfinite(actions).all()
    environment = world.make()
    assert environment.observation_space.shape == (len(world.observations),)
    np.testing.assert_array_equal(environment.action_space.low, world.low)
    np.testing.assert_array_equal(environment.action_space.high, world.high)
    assert all(0 <= rate <= 1 for rate in rates(world, observations).values())


def test_a_log_is_what_controller_a_did() -> None:
    data = write_log(TANK)
    starts, stops = data.episodes.T
    np.testing.assert_array_equal(data.observations[starts, 0], np.arange(40) % 2)
    np.testing.assert_allclose(data.rewards, data.observations[:, 0] + data.actions[:, 0], rtol=1e-6)
    assert data.actions.max() == 2, "actions are cut to what the process takes"
    np.testing.assert_array_equal(data.terminals[stops - 1], data.rewards[stops - 1] > 4)
    assert 0 < data.terminals.sum() < 40
    assert write_log(TANK).hash == data.hash


def test_the_file_has_gaps_and_odd_headers_and_holds_the_same_log(tmp_path: Path) -> None:
    data = write_log(TANK)
    write_csv(replace(TANK, gaps=0), data, tmp_path / "tank.csv")
    whole = logged(TANK, tmp_path)
    np.testing.assert_allclose(whole.observations, data.observations, rtol=1e-5)
    np.testing.assert_array_equal(whole.episodes, data.episodes)
    np.testing.assert_array_equal(whole.terminals, data.terminals)
    assert whole.columns == TANK.columns and whole.action_high == 2

    write_csv(TANK, data, tmp_path / "tank.csv")
    header, *lines = (tmp_path / "tank.csv").read_text().splitlines()
    assert header == "shift,level [m],left,inflow [l/s],reward,overflow"
    missing = [line.split(",")[1] == "" for line in lines]
    assert 6 <= sum(missing) <= 18 and not np.array(missing)[data.episodes[:, 0]].any()
    with pytest.raises(UserError, match="level"):
        sbac.load(tmp_path / "tank.csv", columns={**TANK.columns, "rewards": "reward", "episode": "shift"})
    held = logged(TANK, tmp_path)
    np.testing.assert_allclose(held.observations[~np.array(missing)], data.observations[~np.array(missing)], rtol=1e-5)


def test_the_truth_is_counted() -> None:
    """Filling by 0.5 from 0 and 1 in turn: levels to 2.5 and 3.5, and no overflow."""
    result = truth(TANK, filling, 4)
    assert result["returns"] == [7.5, 12.5, 7.5, 12.5] and result["error"] == pytest.approx(np.sqrt(25 / 3) / 2)
    assert result["happened"] == {"return": 10, "`level [m]` > 2": 2 / 10, "end": 0}
    flooding = truth(TANK, lambda seen: 4 * filling(seen), 4)  # pyright: ignore
    assert flooding["returns"] == [12, 8, 12, 8] and flooding["happened"]["end"] == 1


def test_what_was_learned_and_controller_b_are_judged_and_played(tmp_path: Path, monkeypatch: Any) -> None:
    """With a run of two untrained policies in the place of what sbac learn leaves; the second one is taken."""
    run = sbac.train(logged(TANK, tmp_path), "bc", seeds=2, steps=0, evaluate=False, out=tmp_path / "tank/runs/bc")
    numbers: dict[str, Any] = dict.fromkeys(NUMBERS) | {"warnings": [], "set_aside": False, "episode_low": 7.0}
    first, second = (
        replace(CandidateRecord(f"seed={seed}", seed, {}, **numbers), episode=9.0 + seed, policy=policy.hash)
        for seed, policy in enumerate(run.policies)
    )
    log = LogRecord("tank", "", 0.0, 0.0, 0.0, 0.0, [])
    write_choice(tmp_path / "tank/runs/bc", ChoiceRecord(2, "seed=1", True, "", log, 0.99, [first, second]))
    monkeypatch.setattr(sbac, "learn", Mock(return_value=Mock(keep=True)))
    monkeypatch.setattr(sbac, "select", Mock(return_value=Mock(candidates=[Mock(label="clone"), first])))
    logged_row, learned, other = judged(TANK, tmp_path, 4, None)
    assert logged_row["happened"]["return"] == pytest.approx(write_log(TANK).returns.mean(), rel=1e-4)
    assert (learned["policy"], learned["promised"]) == ("learned, not taken", {"return": [10, 7, None]})
    assert learned["returns"] == truth(TANK, run.policies[1], 4)["returns"] != other["returns"]
    assert other["promised"] == {"return": [9, 7, None]} and other["returns"] == truth(TANK, filling, 4)["returns"]


def test_a_package_that_is_missing_is_one_line() -> None:
    with pytest.raises(UserError, match=r"no_such_world: not installed .* lab-notes/worlds/install.sh"):
        package("no_such_world")


def test_promise_and_truth_stand_in_one_line() -> None:
    log = {"world": "tank", "policy": "the log", "happened": {"return": 8.0, "full": 0.5}}
    about = {"world": "tank", "policy": "filling", "happened": {"return": 10.0, "full": 0.25}, "error": 1.0}
    promised = {"return": [9.0, 7.0, 12.0], "full": [0.2, None, None]}
    *_, earned, watched, warned = table([log, about | {"promised": promised, "warnings": ["few rows"]}]).splitlines()
    assert earned == "| tank | filling | return | 8.0 | 9.0 [7.0, 12.0] | 10.0 ± 1.0 |"
    assert watched == "| tank | filling | full | 50.0 % | 20.0 % | 25.0 % |"
    assert "few rows" in warned
