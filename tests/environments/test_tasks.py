"""The tasks against D4RL's published references and the paper's Table 1."""

import numpy as np
import pytest

from sbac.data import TASKS, find_task, normalised_score
from sbac.environments.opening import open_environment
from sbac.environments.tasks import task_of_file
from sbac.errors import UserError
from sbac.lab.paper import TABLE_1


def test_the_19_tasks_of_the_paper():
    tiers = ("random", "medium", "medium-replay", "medium-expert", "expert")
    bodies = ("halfcheetah", "hopper", "walker2d")
    expected = {f"{body}-{tier}-v2" for body in bodies for tier in tiers}
    expected |= {f"{name}-human-v1" for name in ("pen", "hammer", "door", "relocate")}
    assert expected <= set(TASKS)
    assert {task.env_id for name, task in TASKS.items() if name.endswith("v2")} == {
        "HalfCheetah-v4",
        "Hopper-v4",
        "Walker2d-v4",
    }
    assert {task.horizon for name, task in TASKS.items() if name.endswith("v2")} == {1000}
    assert [TASKS[f"{name}-human-v1"].horizon for name in ("pen", "hammer", "door", "relocate")] == [100, 200, 200, 200]


REFERENCES = {
    "halfcheetah-medium-v2": (-280.178953, 12135.0),
    "hopper-expert-v2": (-20.272305, 3234.3),
    "walker2d-random-v2": (1.629008, 4592.3),
    "pen-human-v1": (96.262799, 3076.8331017826877),
    "hammer-human-v1": (-274.856578, 12794.134825156867),
    "door-human-v1": (-56.512833, 2880.5693087298737),
    "relocate-human-v1": (-6.425911, 4233.877797728884),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_scores(name):
    low, high = REFERENCES[name]
    task = TASKS[name]
    assert (task.reference_min, task.reference_max) == (low, high)
    assert task.score(low) == 0.0 and task.score(high) == pytest.approx(100.0)
    returns = np.array([low, high, (low + high) / 2])
    np.testing.assert_allclose(normalised_score(name, returns), [0, 100, 50])


def test_the_papers_table_has_a_row_for_each_of_its_tasks():
    assert list(TABLE_1) == [task.base for task in TASKS.values() if task.base in TABLE_1] and len(TABLE_1) == 19
    assert TABLE_1["pen-human"]["sbac"] == (78.8, 2.0) and TABLE_1["hopper-medium"]["cql"] == (58.0, None)
    assert "fisher-brc" not in TABLE_1["pen-human"]


def test_other_names_of_a_task():
    made, demo = find_task("hopper-medium-made"), find_task("hopper-demo")
    assert (made.name, made.env_id, made.reference_max) == ("hopper-medium-made", "Hopper-v4", 3234.3)
    assert made.base == TASKS["hopper-medium-v2"].base and demo.base not in TABLE_1 and demo.files == made.files == ()
    assert (demo.name, demo.env_id, demo.horizon) == ("hopper-demo", "Hopper-v4", 1000)
    assert find_task("walker2d-medium-replay-v0").files[0] == "walker_mixed.hdf5"
    for wrong in ("hopper-medium", "door-human-made", "door-human-v2", "hopper-human-v1", "x-made", ""):
        with pytest.raises(UserError, match="unknown task"):
            find_task(wrong)


def test_d4rl_file_names():
    assert TASKS["hopper-medium-replay-v2"].files == ("hopper_medium_replay-v2.hdf5", "hopper-medium-replay-v2.hdf5")
    assert TASKS["door-human-v1"].files == ("door-human-v1.hdf5",)
    assert task_of_file("hopper_medium_replay-v2.hdf5") == "hopper-medium-replay-v2"
    assert task_of_file("walker_mixed.hdf5") == "walker2d-medium-replay-v0"
    assert task_of_file("door-v0_demos_clipped.hdf5") == "door-human-v0"
    assert task_of_file("log.hdf5") is None


@pytest.mark.parametrize("task", ["halfcheetah-medium-v2", "hopper-demo", "walker2d-expert-made", "pen-human-v1"])
@pytest.mark.filterwarnings("ignore:.*out of date.*")
def test_the_sizes_of_a_task_are_those_of_its_environment(task: str) -> None:
    environment = open_environment(find_task(task).env_id)
    assert find_task(task).sizes == (environment.observation_space.shape[0], environment.action_space.shape[0])


@pytest.mark.parametrize("task", ["hammer-human-v1", "door-human-v1", "relocate-human-v1"])
@pytest.mark.slow
def test_the_sizes_of_the_other_adroit_tasks(task: str) -> None:
    test_the_sizes_of_a_task_are_those_of_its_environment(task)
