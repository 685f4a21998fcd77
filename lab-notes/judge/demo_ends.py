"""Adds the s' of terminal rows to the demo's log: each is one step of the simulator from its row's state and action.

python lab-notes/judge/demo_ends.py

The rows stay as they are. Where a velocity was clipped in the log (19 of 313 rows) s' is near the true one only.
"""

import io

import numpy as np

from sbac.data.locating import embedded_file
from sbac.environments.lanes import BodyLanes
from sbac.files import write_atomic

path = embedded_file("hopper-demo")
arrays = dict(np.load(path, allow_pickle=False))
ends = np.flatnonzero(arrays["terminals"])
lanes = BodyLanes("Hopper-v4", len(ends), 0)
for body, observation in zip(lanes.instances, arrays["observations"][ends].astype(np.float64), strict=True):
    body.set_state(np.concatenate([[0.0], observation[:5]]), observation[5:])  # type: ignore[attr-defined]
after, rewards, fell = lanes.advance(arrays["actions"][ends], lanes.all_lanes)
missed = np.abs(rewards - arrays["rewards"][ends]).max()
print(f"{len(ends)} ends, {fell.sum()} falls; rewards differ by {missed:.3f} at most")
assert fell.all()
file = io.BytesIO()
np.savez_compressed(file, allow_pickle=False, **arrays | {"terminal_observations": after})
write_atomic(path, file.getvalue())
