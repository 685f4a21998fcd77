"""Transitions come in: `load` reads every source into a `Dataset`; `tasks` knows the paper's tasks."""

from sbac.data.dataset import Dataset
from sbac.data.loading import load
from sbac.data.locating import data_folder
from sbac.environments.tasks import TASKS, Task, find_task, normalised_score

__all__ = ["TASKS", "Dataset", "Task", "data_folder", "find_task", "load", "normalised_score"]
