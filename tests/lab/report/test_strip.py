"""Pictures of a rollout: real ones where the machine can draw, one clear line where it cannot."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sbac.errors import UserError
from sbac.lab.report.strip import FRAMES, HEIGHT, rollout_strip
from sbac.policy import Policy


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Hopper with all joints at rest."""
    arrays = {"policy/weights/0": np.zeros((11, 3), np.float32), "policy/biases/0": np.zeros(3, np.float32)}
    arrays |= {"scale/observation_mean": np.zeros(11, np.float32), "scale/observation_std": np.ones(11, np.float32)}
    arrays |= {"scale/action_low": -np.ones(3, np.float32), "scale/action_high": np.ones(3, np.float32)}
    path = tmp_path / "policy.safetensors"
    Policy("deterministic", arrays, {"algorithm": "none", "seed": 0, "task": None, "label": "seed=0", "grid": []}).save(
        path
    )
    return path


def test_one_line_where_nothing_can_be_drawn(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(UserError, match="cannot be drawn here .*nonsense.*OSMesa") as caught:
        rollout_strip(policy, "hopper-medium-v2", "title")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_frames_side_by_side(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    try:
        caption, png = rollout_strip(policy, "hopper-medium-v2", "<title>")
    except UserError as error:
        pytest.skip(str(error))
    strip = Image.open(io.BytesIO(png))
    assert strip.size == (FRAMES * HEIGHT, HEIGHT)
    assert caption.startswith("<title>: return ") and "steps 0," in caption
    first, last = (np.asarray(strip)[:, i * HEIGHT : (i + 1) * HEIGHT].astype(int) for i in (0, FRAMES - 1))
    assert first.std() > 10 and np.abs(first - last).mean() > 1  # something is seen, and it falls
