"""python lab-notes/worlds/meals.py LOG CHECKPOINT ...: what a training on the diabetes log knows of boluses at meals.

CHECKPOINT: RUN/checkpoint/state-0.safetensors of a run of SBAC, preset `quick`. Prints the clone's bolus at meals of
more than 30 g and its deviation before the tanh, Q by bolus, and each policy's bolus.
"""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load

import sbac
from sbac.algorithms.sbac import SBACConfig
from sbac.nn import MLP, Critic, GaussianPolicy
from sbac.training.table import Scaling

BOLUSES = (0, 2, 4, 6, 8, 10, 12, 15)


def network(arrays: dict[str, np.ndarray], name: str, run: int, normalise: bool = False) -> MLP:
    layers = range(sum(key.startswith(f"{name}/weights/") for key in arrays))
    weights, biases = (
        [jnp.asarray(arrays[f"{name}/{part}/{n}"][run]) for n in layers] for part in ("weights", "biases")
    )
    return MLP(weights, biases, normalise)


log, *checkpoints = sys.argv[1:]
data = sbac.load(log)
scaling = Scaling.of(data, SBACConfig())
carbs, glucose = data.observations[:, 3], data.observations[:, 0]
meals, quiet = carbs > 30, (carbs == 0) & (glucose < 180)
states = jnp.asarray(scaling.states(data.observations))
actions = jnp.asarray(scaling.actions(data.actions))
for path in checkpoints:
    arrays = load(Path(path).read_bytes())
    clone = GaussianPolicy(network(arrays, "estimate/clone/model/net", 0))(states)
    deviation = np.exp(np.asarray(clone.log_std))[:, 1]
    units = 7.5 * (np.asarray(clone.mode())[meals, 1] + 1)
    print(f"{path}\n  clone: {units.mean():.2f} U; deviation {np.median(deviation[meals]):.2f} at meals,", end=" ")
    print(f"{np.median(deviation[quiet]):.4f} without carbohydrates below 180 mg/dl")
    runs = len(arrays["improve/policy/model/net/weights/0"])
    critics = [("Q^mu", "estimate/critic/model/nets", 0)]
    if "improve/following/model/nets/weights/0" in arrays:
        critics += [(f"Q^pi of run {run}", "improve/following/model/nets", run) for run in range(runs)]
    for name, where, run in critics:
        critic = Critic(network(arrays, where, run, normalise=True))
        at = [critic.lower_bound(states[meals], actions[meals].at[:, 1].set(b / 7.5 - 1), 0.5).mean() for b in BOLUSES]
        print(f"  {name}: " + ", ".join(f"{bolus} U {q:.2f}" for bolus, q in zip(BOLUSES, at, strict=True)))
    for run in range(runs):
        policy = GaussianPolicy(network(arrays, "improve/policy/model/net", run))(states)
        print(f"  policy of run {run}: {7.5 * (np.asarray(policy.mode())[meals, 1] + 1).mean():.2f} U at meals")
