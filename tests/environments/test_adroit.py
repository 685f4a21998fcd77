"""The Adroit rewards against what D4RL and the demonstrations' authors recorded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from sbac.data import TASKS
from sbac.environments.opening import open_environment

pytest.importorskip("gymnasium_robotics")

FILES = Path(__file__).parent.parent / "data"
DEMOS = FILES / "door-human-demos.npz"
MINARI = FILES / "minari" / "D4RL" / "door" / "human-v2" / "data" / "main_data.hdf5"


@pytest.fixture(scope="module")
def demos():
    with np.load(DEMOS) as file:
        return {name: file[name].astype(np.float64) for name in file.files}


@pytest.fixture
def door():
    env = open_environment(TASKS["door-human-v1"].env_id).unwrapped
    yield env
    env.close()


def reset_to(env, start):
    return env.reset(seed=0, options={"initial_state_dict": start})[0]


def first_pose(env, door_position, observation):
    """The state a demonstration's first observation shows.

    All joints are in it but one, the slide of the arm, which the position of the palm gives away; velocities are not,
    and the hand is at rest.
    """
    slide, door_hinge, latch = 0, 28, 29
    start = {"qpos": np.zeros(30), "qvel": np.zeros(30), "door_body_pos": door_position}
    start["qpos"][1:28], start["qpos"][latch], start["qpos"][door_hinge] = observation[:27], *observation[27:29]
    palm = slice(29, 32)
    at_zero = reset_to(env, start)[palm]
    start["qpos"][slide] = 0.01
    per_metre = (reset_to(env, start)[palm] - at_zero) / 0.01
    start["qpos"][slide] = per_metre @ (observation[palm] - at_zero) / (per_metre @ per_metre)
    return start


def test_door_replays_the_demonstrations_until_the_simulators_part(demos, door):
    env = open_environment(TASKS["door-human-v1"].env_id, max_episode_steps=1000)
    agreeing_steps, same_returns = [], 0
    for episode in range(25):
        rows = np.flatnonzero(demos["episode"] == episode)
        position = demos["init_door_body_pos"][episode]
        start = first_pose(door, position, demos["observations"][rows[0]])
        observation, _ = env.reset(seed=0, options={"initial_state_dict": start})
        np.testing.assert_allclose(observation, demos["observations"][rows[0]], atol=1e-5)
        rewards = np.array([env.step(action)[1] for action in demos["actions"][rows]])
        apart = np.abs(rewards - demos["rewards"][rows])
        agreeing_steps.append(int(np.argmax(apart > 1e-3)) if (apart > 1e-3).any() else len(rows))
        same_returns += abs(rewards.sum() - demos["rewards"][rows].sum()) < 0.2
    env.close()
    assert min(agreeing_steps) >= 120
    assert np.mean(agreeing_steps) >= 180
    assert same_returns >= 13


def test_door_replays_minari_with_the_sign_of_one_term_turned():
    """Minari replayed the same demonstrations with gymnasium-robotics' reward: all steps agree, but for that term."""
    env = open_environment(TASKS["door-human-v1"].env_id, max_episode_steps=1000)
    with h5py.File(MINARI) as file:
        for number in range(8):
            episode, state = file[f"episode_{number}"], "options/initial_state_dict/"
            assert isinstance(episode, h5py.Group)
            observations, actions, recorded = (
                np.asarray(episode[name]) for name in ("observations", "actions", "rewards")
            )
            names = ("qpos", "qvel", "door_body_pos")
            start = {name: np.asarray(episode.attrs[state + name], np.float64) for name in names}
            env.reset(seed=0, options={"initial_state_dict": start})
            rewards = np.array([env.step(action)[1] for action in actions])
            palm_to_handle = np.linalg.norm(observations[1:, 35:38], axis=1)
            np.testing.assert_allclose(rewards, recorded - 0.2 * palm_to_handle, atol=1e-3)
    env.close()


# A uniformly random policy is what D4RL's score 0 was measured with, over 100 episodes.
@pytest.mark.parametrize(("name", "tolerance"), [("door", 1.0), ("hammer", 5.0), ("relocate", 6.0)])
def test_random_actions_return_the_reference_minimum(name, tolerance):
    task = TASKS[f"{name}-human-v1"]
    assert abs(np.mean(random_returns(task, 5)) - task.reference_min) < tolerance


def random_returns(task, episodes):
    env = open_environment(task.env_id)
    env.action_space.seed(0)
    returns = []
    for seed in range(episodes):
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            assert type(reward) is float
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    env.close()
    return returns


def test_pen_ends_when_it_is_dropped_and_at_100_steps():
    env = open_environment(TASKS["pen-human-v1"].env_id)
    hand: Any = env.unwrapped
    ends = set()
    for size in (0.0, 1.0):
        env.reset(seed=0)
        env.action_space.seed(0)
        for step in range(1, 101):
            _, reward, terminated, truncated, _ = env.step(size * env.action_space.sample())
            dropped = hand.data.xpos[hand.obj_body_id][2] < 0.075
            assert terminated == dropped and truncated == (step == 100)
            if terminated:
                assert float(reward) < -3.0
                break
        ends.add("dropped" if terminated else "held")
    env.close()
    assert ends == {"dropped", "held"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["door", "hammer", "pen", "relocate"])
def test_random_actions_return_the_reference_minimum_over_100_episodes(name):
    task = TASKS[f"{name}-human-v1"]
    returns = np.array(random_returns(task, 100))
    error = returns.std() / 10.0  # of ours; D4RL's own mean of 100 has the same
    assert abs(returns.mean() - task.reference_min) < 3.0 * np.sqrt(2.0) * error


def test_the_ids_are_registered_when_one_is_asked_for_and_the_simulator_prints_no_notice():
    code = """if True:
        from sbac.environments.opening import check_known, environment_of
        for asked in ("door-human-v1", "sbac/AdroitDoor-v1"):
            check_known(asked)
            name, make = environment_of(asked)
            make().close()
            print(name)
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (2 * "sbac/AdroitDoor-v1\n", "")
