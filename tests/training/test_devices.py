"""The runs of a program on several devices: each is the run that it is alone, up to rounding."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from sbac import files
from sbac.training.devices import Devices

COUNT = 8
SCRIPT = """
import sys
import jax, numpy as np
from pathlib import Path
sys.path.insert(0, {tests!r})
from training.test_together import make_data, SMALL
import sbac
assert len(jax.local_devices()) == {count}
out = Path({out!r})
options = dict(seeds=3, alpha=[0.05, 50.0], ratio_hidden=[8], steps=30, evaluate=False, progress=False, **SMALL)
data = make_data(800, 0)
sbac.train(data, "sbac", out=out / "several", checkpoint_seconds=0.0, **options)
"""


def test_rows_fill_the_devices() -> None:
    devices = Devices(jax.local_devices() * 4, 10)
    assert devices.count == 4 and devices.filled([5, 6, 7, 8, 9]) == [5, 6, 7, 8, 9, 9, 9, 9]
    assert Devices(jax.local_devices() * 4, 3).count == 3
    one = Devices(jax.local_devices() * 4, 1)
    assert one.count == 1 and one.filled([5]) == [5]
    tree = {"a": np.arange(3)}
    assert one.spread(tree) is tree and one.copied(tree) is tree and one.each(len, [True]) is len


def train(script: str, count: int) -> None:
    """In a process of its own, whose CPU counts as several devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
    settings = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], env=settings, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_each_run_on_eight_devices_is_the_run_that_it_is_alone(tmp_path: Path) -> None:
    """Three runs of the first phase on six of eight devices, six of the second: with copies, and a phase between.

    The run is cut in its second phase and taken up again on one device; a checkpoint holds no trace of the devices.
    """
    from sbac.runs import Run

    tests = str(Path(__file__).parents[1])
    train(SCRIPT.format(tests=tests, count=COUNT, out=str(tmp_path)), COUNT)
    train(SCRIPT.format(tests=tests, count=1, out=str(tmp_path / "alone")), 1)
    ours, theirs = Run.load(tmp_path / "several"), Run.load(tmp_path / "alone" / "several")
    assert len(ours.policies) == 6
    for mine, other in zip(ours.policies, theirs.policies, strict=True):
        assert mine.config == other.config
        for name in mine.arrays:
            np.testing.assert_allclose(mine.arrays[name], other.arrays[name], rtol=2e-3, atol=2e-4, err_msg=name)
    assert [row.keys() for row in ours.metrics] == [row.keys() for row in theirs.metrics]
    states = [
        files.load_arrays(run / "several/checkpoint/state-0.safetensors") for run in (tmp_path, tmp_path / "alone")
    ]
    assert states[0][1] == states[1][1] and states[0][0].keys() == states[1][0].keys()
    for name, values in states[0][0].items():
        np.testing.assert_allclose(values, states[1][0][name], rtol=2e-2, atol=1e-3, err_msg=name)
