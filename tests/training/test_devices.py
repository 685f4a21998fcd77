"""The runs of a program on several devices: each is the run that it is alone, up to rounding; a run that began on
several goes on with one."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from sbac import files
from sbac.runs import Run
from sbac.training.devices import Devices

COUNT = 8
STATE = "checkpoint/state-0.safetensors"
STEPS, CUT = 30, 20
SCRIPT = """
import sys
import jax
sys.path.insert(0, {root!r})
from tests.small import make_log
import sbac
from sbac.training.writer import Writer
assert len(jax.local_devices()) == {count}
options = dict(seeds=3, alpha=[0.05, 50.0], ratio_hidden=[8], steps={steps}, hidden=[8], batch_size=16)
options |= dict(evaluate=False, progress=False, checkpoint_seconds=0.0, resume=True)
data = make_log(800, 50)
sbac.train(data, "sbac", out={whole!r}, **options)
log, logged = Writer.log, []
def cut(self, phase, step, metrics):
    if {count} > 1 and (phase, step) == (1, {cut}):
        raise KeyboardInterrupt
    logged.append((phase, step))
    log(self, phase, step, metrics)
Writer.log = cut
try:
    sbac.train(data, "sbac", out={broken!r}, **options)
except KeyboardInterrupt:
    assert {count} > 1
assert logged[0] == ((0, 1) if {count} > 1 else (1, {cut})), logged[0]
"""


def test_rows_fill_the_devices() -> None:
    devices = Devices(jax.local_devices() * 4, 10)
    assert devices.count == 4 and devices.filled([5, 6, 7, 8, 9]) == [5, 6, 7, 8, 9, 9, 9, 9]
    assert Devices(jax.local_devices() * 4, 3).count == 3
    one = Devices(jax.local_devices() * 4, 1)
    assert one.count == 1 and one.filled([5]) == [5]
    tree = {"a": np.arange(3)}
    assert one.spread(tree) is tree and one.copied(tree) is tree and one.each(len, [True]) is len


def train(folder: Path, count: int) -> None:
    """A whole run and another, which is cut on several devices and taken up again on one. The process is one of its
    own, whose CPU counts as several devices."""
    root, whole, broken = str(Path(__file__).parents[2]), str(folder / f"on-{count}"), str(folder / "broken")
    script = SCRIPT.format(root=root, count=count, steps=STEPS, cut=CUT, whole=whole, broken=broken)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
    settings = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], env=settings, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_each_run_on_eight_devices_is_the_run_that_it_is_alone(tmp_path: Path) -> None:
    """Three runs of the first phase on six of eight devices, six of the second: with copies, and a phase between.

    The run is cut in its second phase and taken up again on one device; a checkpoint holds no trace of the devices.
    """
    train(tmp_path, COUNT)
    _, broken = files.load_arrays(tmp_path / "broken" / STATE)
    assert broken["phase"] == 1 and broken["step"] < CUT and not list((tmp_path / "broken").glob("policies/*"))
    train(tmp_path, 1)
    several, alone, resumed = (Run.load(tmp_path / name) for name in (f"on-{COUNT}", "on-1", "broken"))
    assert len(alone.policies) == 6
    for ours in (several, resumed):
        for mine, other in zip(ours.policies, alone.policies, strict=True):
            assert mine.config == other.config
            for name in mine.arrays:
                np.testing.assert_allclose(mine.arrays[name], other.arrays[name], rtol=2e-3, atol=2e-4, err_msg=name)
        assert [row.keys() for row in ours.metrics] == [row.keys() for row in alone.metrics]
    states = [files.load_arrays(tmp_path / name / STATE) for name in (f"on-{COUNT}", "on-1")]
    assert states[0][1] == states[1][1] and states[0][0].keys() == states[1][0].keys()
    for name, values in states[0][0].items():
        np.testing.assert_allclose(values, states[1][0][name], rtol=2e-2, atol=1e-3, err_msg=name)
