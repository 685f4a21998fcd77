"""A rollout of a policy as one picture: frames of an episode side by side.

MuJoCo chooses how it draws when it is first imported, so the drawing happens in a fresh interpreter, first by EGL (a
GPU, no screen), then by OSMesa (no GPU either).
"""

import base64
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sbac.environments.opening import may_open, open_environment
from sbac.errors import UserError
from sbac.records import as_json, parse
from sbac.workers import import_path

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from sbac.policy import Policy

BACKENDS = ("egl", "osmesa")
FRAMES = 8
HEIGHT = 200


@dataclass(frozen=True)
class FilmedEpisode:
    """An episode: a PNG in base 64, its return, its length, and the steps of the frames."""

    png: str
    total: float
    length: int
    steps: list[int]


def rollout_strip(policy: Path, environment: str, title: str, seed: int = 0) -> tuple[str, bytes]:
    """A caption and a PNG of one episode from the environment's seed `seed`."""
    if not may_open(environment):
        raise UserError(f"--render: {environment!r} is not drawn: a file names it, and its package is not a known one")
    chosen = os.environ.get("MUJOCO_GL")
    reason = ""
    for backend in (chosen,) if chosen else BACKENDS:
        answer = subprocess.run(
            [sys.executable, "-P", "-m", "sbac.lab.report.strip", str(policy), environment, str(seed)],
            capture_output=True,
            text=True,
            env={**os.environ, "MUJOCO_GL": backend, "PYTHONPATH": import_path()},
        )
        if answer.returncode == 0:
            filmed = parse(FilmedEpisode, json.loads(answer.stdout.splitlines()[-1]), "the rollout")
            steps = ", ".join(map(str, filmed.steps))
            caption = f"{title}: return {filmed.total:.0f} in {filmed.length} steps; frames at steps {steps}"
            return caption, base64.b64decode(filmed.png)
        reason = next((line for line in reversed(answer.stderr.splitlines()) if line.strip()), "no reason given")
    raise UserError(
        f"--render: {environment} cannot be drawn here ({reason}); MuJoCo needs EGL (libegl1 and a GPU) or OSMesa "
        "(libosmesa6)"
    )


def main() -> None:
    """In the fresh interpreter: one JSON line with the picture."""
    from sbac.policy import Policy

    path, environment, seed = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an environment prints must not mix with the answer
    print(json.dumps(as_json(play(Policy.load(path), environment, int(seed)))), file=out, flush=True)


def play(policy: "Policy", environment: str, seed: int) -> FilmedEpisode:
    """The episode twice: once for its length, once for its frames."""
    import numpy as np
    from PIL import Image

    from sbac.environments.tasks import find_task, is_task

    name = find_task(environment).env_id if is_task(environment) else environment
    env = open_environment(name, render_mode="rgb_array")

    def episode(shown: set[int]) -> "tuple[float, int, list[Picture]]":
        state, _ = env.reset(seed=seed)
        total, step, over = 0.0, 0, False
        frames: list[Picture] = []
        while not over:
            if step in shown:
                frames.append(Image.fromarray(np.asarray(env.render())))
            state, reward, terminated, truncated, _ = env.step(policy(state))
            total, step, over = total + float(reward), step + 1, terminated or truncated
        return total, step, frames

    total, length, _ = episode(set())
    steps: list[int] = np.unique(np.linspace(0, length - 1, FRAMES).astype(int)).tolist()
    frames = [frame.resize((frame.width * HEIGHT // frame.height, HEIGHT)) for frame in episode(set(steps))[2]]
    strip = Image.new("RGB", (sum(frame.width for frame in frames), HEIGHT))
    for i, frame in enumerate(frames):
        strip.paste(frame, (i * frame.width, 0))
    image = io.BytesIO()
    strip.save(image, "PNG", optimize=True)
    return FilmedEpisode(base64.b64encode(image.getvalue()).decode(), total, length, steps)


if __name__ == "__main__":
    main()
