"""Made data: lanes against Gymnasium, flags, shards, tiers, identities, and ladders that survive their file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbac
from sbac.data.locating import stand_ins
from sbac.environments.lanes import Steps, acting, open_lanes, uniform
from sbac.environments.tasks import find_task
from sbac.errors import UserError
from sbac.making import making
from sbac.making.ladder import ladder_hash, read_ladders, shipped
from sbac.making.making import TierData, join, layout, made_identity, make_datasets, played, replay_stages
from sbac.making.shards import Shard, by_lane, make_shard, roll
from sbac.policy import FORMULAS

SIZE = 4_000
"""Enough for two shards."""


# --- Environments in lock-step ------------------------------------------------------------------------------------


def test_some_lanes_alone() -> None:
    """Lanes that are not asked for stand still."""
    lanes = open_lanes("Hopper-v4", 3, 0)
    before = lanes.observations.copy()
    steps = lanes.step(np.zeros((1, 3), np.float32), np.array([1]))
    np.testing.assert_array_equal(lanes.observations[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(lanes.observations[[1]], steps.next_observations)
    assert lanes.ages.tolist() == [0, 1, 0]


def test_actions_are_scaled_to_the_environments_bounds() -> None:
    lanes = open_lanes("Pendulum-v1", 1, 0)
    cos, sin, speed = lanes.observations[0]
    reward = lanes.step(np.array([[1.0]], np.float32)).rewards[0]
    assert reward == pytest.approx(-(np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * 2.0**2), abs=1e-5)


def test_episodes_end_at_the_horizon_and_start_again() -> None:
    lanes = open_lanes("HalfCheetah-v4", 1, 0)
    lanes.ages[:] = 998
    still = np.zeros((1, 6), np.float32)
    assert not lanes.step(still).timeouts[0]
    last = lanes.step(still)
    assert last.timeouts[0] and not last.terminals[0]
    assert lanes.ages[0] == 0
    assert not np.array_equal(lanes.observations, last.next_observations)


# --- Rows ---------------------------------------------------------------------------------------------------------


def fake(lanes: list[int], ends: list[str]) -> tuple[np.ndarray, Steps]:
    """One step of some lanes; the reward tells the lane."""
    n = len(lanes)
    zeros = np.zeros((n, 1), np.float32)
    flags = [np.array([kind in end for end in ends]) for kind in ("fall", "limit")]
    return np.array(lanes), Steps(zeros, zeros, np.array(lanes, np.float32), zeros, flags[0], flags[1])


def test_rows_go_lane_by_lane_and_the_time_limit_has_priority() -> None:
    rows = by_lane([fake([0, 1], ["", "fall"]), fake([0, 1], ["fall limit", ""]), fake([1], [""])])
    assert rows["rewards"].tolist() == [0, 0, 1, 1, 1]
    assert rows["terminals"].tolist() == [False, False, True, False, False]
    assert rows["timeouts"].tolist() == [False, True, False, False, True]


def test_whole_episodes_are_finished_and_others_cut() -> None:
    for whole in (True, False):
        lanes = open_lanes("Hopper-v4", 2, 3)
        rows = roll(lanes, [(uniform(3, np.random.default_rng(0)), 60)], whole, lambda done: None)
        assert rows["timeouts"].sum() == (0 if whole else 2)
        assert (len(rows["rewards"]) > 120) if whole else (len(rows["rewards"]) == 120)
        assert (rows["terminals"] | rows["timeouts"])[-1]
        after = rows["terminal_observations"]
        assert len(after) == rows["terminals"].sum() >= (2 if whole else 0)
        assert ((after[:, 0] <= 0.7) | (np.abs(after[:, 1]) >= 0.2)).all()  # where a hopper has fallen


# --- Tiers --------------------------------------------------------------------------------------------------------


def test_the_rows_do_not_depend_on_the_number_of_workers() -> None:
    def made(workers: int) -> sbac.Dataset:
        ((name, columns),) = played(["hopper-random-made"], SIZE, 0, workers, False)
        rows: dict[str, Any] = dict(columns)
        return sbac.Dataset(**rows, task=name)

    one, two = made(1), made(2)
    assert len(TierData("hopper", "random", SIZE, 0).shards()) == 2
    assert one.hash == two.hash
    assert len(one) == SIZE
    assert (
        one.score is not None and abs(one.score) < 3 and np.abs(one.actions).max() <= 1
    )  # uniform actions: the task's score 0
    assert abs(one.actions.mean()) < 0.02 and one.actions.var() == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize("body", ["halfcheetah", "hopper", "walker2d"])
def test_replay_goes_up_the_ladder(body: str) -> None:
    ladder = read_ladders(shipped(body))[0]
    stages = replay_stages(ladder, 25_000)
    assert stages[0][0] is None
    assert [rung for rung, _ in stages[1:]] == list(range(ladder.about["medium"]))
    assert sum(n for _, n in stages) == 25_000
    medium = ladder.rungs[ladder.about["medium"]].step
    for rung, n in stages[1:]:
        assert rung is not None
        assert n == pytest.approx((ladder.rungs[rung + 1].step - ladder.rungs[rung].step) * 25_000 / medium, abs=1)


def test_replay_begins_with_uniform_actions_and_continues_with_policies() -> None:
    part = TierData("hopper", "medium-replay", 1_600, 0)
    assert sum(shard.lanes for shard in part.shards()) == 8
    shards = [make_shard(shard) for shard in part.shards()]
    rows = part.join(shards)
    assert len(rows["rewards"]) == 1_600
    assert sum(shard["timeouts"].sum() for shard in shards) == 8


@pytest.mark.parametrize("size", [1, 1_999, 10_000, 64_000, 1_000_000])
def test_shards_make_at_least_the_size(size: int) -> None:
    part = TierData("hopper", "medium", size, 0)
    shards = part.shards()
    assert size <= sum(shard.steps for shard in shards) < size + 128 + sum(shard.lanes for shard in shards)
    assert len({tuple(shard.seed) for shard in shards}) == len(shards)
    count, lanes = layout(size)
    assert count <= 8 and count * lanes <= 128


def test_medium_expert_joins_whole_episodes() -> None:
    def rows(ends: list[int], value: float) -> dict[str, np.ndarray]:
        flags = np.zeros(10, bool)
        flags[ends] = True
        return {"rewards": np.full(10, value), "terminals": flags, "timeouts": np.zeros(10, bool)}

    joined = join([rows([3, 6], 1.0), rows([9], 2.0)])
    assert joined["rewards"].tolist() == [1.0] * 7 + [2.0] * 10


def test_files_identities_and_what_is_left_alone(tmp_path: Path) -> None:
    [path] = make_datasets("walker2d-random-made", out=tmp_path, size=300, seed=4, workers=1)
    assert [p.name for p in tmp_path.iterdir()] == ["walker2d-random-made.npz"]
    identity = made_identity(path)
    assert identity is not None
    assert (identity.tier, identity.size, identity.seed) == ("random", 300, 4)
    assert identity.ladder == ladder_hash(shipped("walker2d"))
    data = sbac.load(path)
    assert (data.name, data.kind, data.task) == ("walker2d-random-made", "made", "walker2d-random-made")
    stamp = path.stat().st_mtime_ns
    make_datasets(["walker2d-random-made"], out=tmp_path, size=300, seed=4)
    assert path.stat().st_mtime_ns == stamp
    make_datasets(["walker2d-random-made"], out=tmp_path, size=301, seed=4, workers=1)
    assert len(sbac.load(path)) == 301


def test_all_means_the_fifteen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(making, "played", lambda names, *rest: asked.extend(names) or iter(()))
    make_datasets("all", out=tmp_path)
    assert asked == stand_ins() and len(asked) == 15


def test_the_second_ladder_acts_with_noise_on_its_actions(tmp_path: Path) -> None:
    """TD3's policy is deterministic: what its data's actions differ by from it is the noise it explored with."""
    [path] = make_datasets("hopper-medium-td3-made", out=tmp_path, size=2_000, workers=1)
    identity, ladder = made_identity(path), read_ladders(shipped("hopper-td3"))[0]
    assert identity is not None and identity.ladder == ladder_hash(shipped("hopper-td3")) and identity.tier == "medium"
    data = sbac.load(path)
    assert data.task == "hopper-medium-td3-made" and np.abs(data.actions).max() <= 1
    mode = FORMULAS[ladder.kind].mode(ladder.rungs[ladder.about["medium"]].policy(), data.observations)
    inside = np.abs(mode) < 0.6  # no clip is felt
    assert (data.actions - mode)[inside].std() == pytest.approx(0.1, rel=0.05)


def test_what_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hopper-medium-mad"):
        make_datasets("hopper-medium-mad", out=tmp_path)
    with pytest.raises(UserError, match="size 0"):
        make_datasets("hopper-medium-made", out=tmp_path, size=0)
    with pytest.raises(UserError, match="workers 0"):
        make_datasets("hopper-medium-made", out=tmp_path, size=100, workers=0)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        make_datasets("hopper-random-made", out=tmp_path / "file" / "sub", size=20, workers=1)


# --- Ladders ------------------------------------------------------------------------------------------------------


def test_what_is_no_ladder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"no ladder")
    with pytest.raises(UserError, match="not a ladder file"):
        read_ladders(tmp_path / "c")


LEVELS = {"halfcheetah": (41, 90), "hopper": (44, 95), "walker2d": (62, 95)}


@pytest.mark.parametrize("body", list(LEVELS))
def test_shipped_ladders(body: str) -> None:
    """Small files; the levels of medium and expert that were measured when they were chosen."""
    assert shipped(body).stat().st_size <= 8_000_000
    ladder = read_ladders(shipped(body))[0]
    task = find_task(f"{body}-medium-made")
    assert ladder.environment == task.env_id
    scores = {tier: [task.score(r) for r in ladder.rungs[ladder.about[tier]].sampled] for tier in ("medium", "expert")}
    medium, expert = LEVELS[body]
    assert len(scores["medium"]) >= 40
    assert np.mean(scores["medium"]) == pytest.approx(medium, abs=5)
    assert np.mean(scores["expert"]) >= expert
    steps = [rung.step for rung in ladder.rungs[: ladder.about["medium"] + 1]]
    assert steps == sorted(steps) and max(np.diff(steps)) <= 20_480


def test_the_hopper_expert_hops() -> None:
    ladder = read_ladders(shipped("hopper"))[0]
    lanes = open_lanes("Hopper-v4", 4, 11)
    rng = np.random.default_rng(11)
    act = acting(ladder.kind, ladder.rungs[ladder.about["expert"]].policy(), rng)
    rows = roll(lanes, [(act, 150)], False, lambda done: None)
    assert not rows["terminals"].any()
    assert rows["rewards"][50:].mean() > 2.5


def test_the_demo_dataset() -> None:
    data = sbac.load("hopper-demo")
    assert data.kind == "embedded" and 80_000 <= len(data) <= 100_000
    assert data.score is not None and 10 <= data.score <= 30  # from poor to mediocre
    scores = [find_task("hopper-demo").score(r) for r in data.returns]
    assert max(scores) > 60
    request = Shard("ladder", [(None, 3), (2, 4)], False, 5, (0, 1))
    assert request.steps == 35
    json.dumps(request.__dict__)
