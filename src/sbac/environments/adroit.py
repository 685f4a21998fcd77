"""The Adroit hand as D4RL scores it: gymnasium-robotics simulates, the rewards are D4RL's.

gymnasium-robotics rewards the palm for being far from the door's handle, the hammer and the ball, where D4RL punishes
it; D4RL ends the pen's episode when the pen is dropped, and its time limit is 100. Importing this module registers
sbac/AdroitDoor-v1, sbac/AdroitHammer-v1, sbac/AdroitPen-v1 and sbac/AdroitRelocate-v1 with Gymnasium; the package does
so when one of these ids is asked for.
"""

import contextlib
import importlib
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from sbac.errors import UserError


def distance(a: Any, b: Any) -> float:
    return float(np.linalg.norm(a - b))


def door(env: Any) -> float:
    """Reach the handle, swing the door to 90 degrees, move calmly."""
    sites, velocity = env.data.site_xpos, env.data.qvel
    angle = float(env.data.qpos[env.door_hinge_addrs])
    reward = -0.1 * distance(sites[env.grasp_site_id], sites[env.handle_site_id])
    reward -= 0.1 * (angle - 1.57) ** 2
    reward -= 1e-5 * float(velocity @ velocity)
    return reward + 2.0 * (angle > 0.2) + 8.0 * (angle > 1.0) + 10.0 * (angle > 1.35)


def hammer(env: Any) -> float:
    """Reach the hammer, bring its head to the nail, drive the nail in, move calmly."""
    sites, hammer = env.data.site_xpos, env.data.xpos[env.obj_body_id]
    head, nail = sites[env.tool_site_id], sites[env.target_obj_site_id]
    depth_left = distance(nail, sites[env.goal_site_id])
    reward = -0.1 * distance(sites[env.S_grasp_site_id], hammer)
    reward -= distance(head, nail) + 10.0 * depth_left
    reward -= 1e-2 * float(np.linalg.norm(env.data.qvel))
    lifted = hammer[2] > 0.04 and head[2] > 0.04
    return reward + 2.0 * lifted + 25.0 * (depth_left < 0.020) + 75.0 * (depth_left < 0.010)


def pen(env: Any) -> float:
    """Hold the pen at the target's place and in the target's direction."""
    sites, position = env.data.site_xpos, env.data.xpos[env.obj_body_id]
    pointing = (sites[env.obj_t_site_id] - sites[env.obj_b_site_id]) / env.pen_length
    wanted = (sites[env.tar_t_site_id] - sites[env.tar_b_site_id]) / env.tar_length
    away, similarity = distance(position, sites[env.eps_ball_site_id]), float(pointing @ wanted)
    near = away < 0.075
    reward = similarity - away + 10.0 * (near and similarity > 0.9) + 50.0 * (near and similarity > 0.95)
    return reward - 5.0 * pen_dropped(env)


def pen_dropped(env: Any) -> bool:
    return bool(env.data.xpos[env.obj_body_id][2] < 0.075)


def relocate(env: Any) -> float:
    """Reach the ball, lift it, carry it to the target."""
    sites, ball = env.data.site_xpos, env.data.xpos[env.obj_body_id]
    palm, target = sites[env.S_grasp_site_id], sites[env.target_obj_site_id]
    away = distance(ball, target)
    reward = -0.1 * distance(palm, ball)
    if ball[2] > 0.04:
        reward += 1.0 - 0.5 * distance(palm, target) - 0.5 * away
    return reward + 10.0 * (away < 0.1) + 20.0 * (away < 0.05)


class Rules(NamedTuple):
    """An Adroit task as D4RL defines it, and the gymnasium-robotics class that simulates it."""

    simulator: str
    reward: Callable[[Any], float]
    horizon: int
    failed: Callable[[Any], bool] = lambda env: False


RULES = {
    "Door": Rules("adroit_door:AdroitHandDoorEnv", door, 200),
    "Hammer": Rules("adroit_hammer:AdroitHandHammerEnv", hammer, 200),
    "Pen": Rules("adroit_pen:AdroitHandPenEnv", pen, 100, pen_dropped),
    "Relocate": Rules("adroit_relocate:AdroitHandRelocateEnv", relocate, 200),
}


class AdroitWithD4RLRewards(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An Adroit simulator whose rewards and endings are D4RL's."""

    def __init__(self, task: str, **options: Any) -> None:
        self.rules = RULES[task]
        super().__init__(_simulator(self.rules.simulator)(**options))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, _, truncated, info = self.env.step(action)
        simulator = self.env.unwrapped
        return observation, float(self.rules.reward(simulator)), self.rules.failed(simulator), truncated, info


def _simulator(name: str) -> Any:
    module, cls = name.split(":")
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # every import prints a notice about its rewards
            return getattr(importlib.import_module(f"gymnasium_robotics.envs.adroit_hand.{module}"), cls)
    except ImportError as error:
        raise UserError("the Adroit tasks need gymnasium-robotics: pip install 'sbac[robotics]'") from error


def register() -> None:
    """Registers the four tasks with Gymnasium, once."""
    for task, rules in RULES.items():
        if (name := f"sbac/Adroit{task}-v1") not in gymnasium.registry:
            gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
                name, AdroitWithD4RLRewards, max_episode_steps=rules.horizon, kwargs={"task": task}
            )


register()
