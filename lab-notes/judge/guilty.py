"""Which part of the learned model misses falls: its ends or its dynamics? Walker2d, policies of preset `quick`.

python lab-notes/judge/guilty.py OUT.jsonl [--task walker2d-medium-replay-made] [--rows N] [--data FOLDER]

Each policy is judged four times from first states of the log: by the model as it is, by the model with the true
end rule at the next state it predicts, by the simulator with the model's ends, and by the simulator alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import sbac
from sbac.environments.lanes import BODIES, BodyLanes
from sbac.environments.tasks import find_task
from sbac.making.making import make_datasets
from sbac.trust import model as models
from sbac.trust.evidence import find_effort
from sbac.trust.log import JudgedLog, read_log

STARTS = 40
learn = models.learn


class TrueEnd(eqx.Module):
    """The learned dynamics, with the body's own rule for a fall at the next state."""

    learned: models.Model
    mean: Float[Array, " obs"]
    std: Float[Array, " obs"]
    height: tuple[float, float] = eqx.field(static=True)
    angle: tuple[float, float] = eqx.field(static=True)

    def __call__(self, states: Array, actions: Array) -> models.Outcome:
        expected = self.learned(states, actions)
        raw = expected.next_states * self.std + self.mean
        fell = ~(
            (raw[..., 0] > self.height[0])
            & (raw[..., 0] < self.height[1])
            & (raw[..., 1] > self.angle[0])
            & (raw[..., 1] < self.angle[1])
        )
        return models.Outcome(expected.next_states, expected.rewards, fell.astype(jnp.float32), expected.disagreement)


def in_simulator(log: JudgedLog, model: models.Model | None, policy: sbac.Policy, env_id: str) -> float:
    """The discounted value from the log's first states; with a model, its ends count and the body's falls do not."""
    first = log.data.initial_observations[np.linspace(0, log.episodes - 1, STARTS).astype(int)]
    lanes = BodyLanes(env_id, len(first), 0)
    for body, observation in zip(lanes.instances, first, strict=True):
        half = (len(observation) + 1) // 2
        body.set_state(np.concatenate([[0.0], observation[: half - 1]]), observation[half - 1 :])  # type: ignore[attr-defined]
    seen, alive, earned = first.astype(np.float32), np.ones(len(first)), np.zeros(len(first))
    expects = eqx.filter_jit(lambda learned, states, actions: learned(states, actions))
    for _ in range(int(np.ceil(np.log(models.NEGLIGIBLE) / np.log(log.discount)))):
        actions = np.asarray(policy(seen))
        after, rewards, fell = lanes.advance(actions, lanes.all_lanes)
        earned += alive * rewards
        if model is None:
            ends: Any = fell
        else:
            units = log.units
            ends = expects(
                model,
                jnp.asarray((seen - units.observation_mean) / units.observation_std, jnp.float32),
                jnp.asarray((actions - units.action_mean) / units.action_std, jnp.float32),
            ).ends.mean(0)
        alive = alive * log.discount * (1.0 - np.asarray(ends, np.float64))
        seen = after
    return float(earned.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--task", default="walker2d-medium-replay-made")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--data", type=Path, default=Path("data"))
    options = parser.parse_args()
    make_datasets(options.task, out=options.data, size=options.rows)
    data = sbac.load(options.data / f"{options.task}.npz")
    task = find_task(options.task)
    body = BODIES[task.env_id]
    run = sbac.train(data, "sbac", preset="quick", seeds=2, alpha=[0.25, 1.0, 4.0], evaluate=False, progress=False)
    log = read_log(data, run.policies[0].config["discount"])
    as_it_is = learn(log, find_effort("quick"), 0)
    mean, std = (jnp.asarray(x, jnp.float32) for x in (log.units.observation_mean, log.units.observation_std))
    judged: dict[str, dict[str, dict[str, Any]]] = {}
    for name in ("as it is", "true end"):
        model = as_it_is if name == "as it is" else TrueEnd(as_it_is, mean, std, body.height, body.angle)
        models.learn = lambda *_, model=model: model  # type: ignore[assignment]
        choice = sbac.select(run, data)
        judged[name] = {row["label"]: row for row in choice.table}
    models.learn = learn
    with options.out.open("a") as file:
        for policy in run.policies:
            label = policy.config["label"]
            played = sbac.evaluate(policy, options.task, episodes=50)
            numbers = {name: table[label]["gain"] for name, table in judged.items()}
            bounds = {name: [table[label]["gain_low"], table[label]["gain_high"]] for name, table in judged.items()}
            numbers["true dynamics, learned end"] = in_simulator(log, as_it_is, policy, task.env_id) - choice.log
            numbers["simulator"] = in_simulator(log, None, policy, task.env_id) - choice.log
            row = {"task": options.task, "label": label, "score": played.score, "gain": numbers, "interval": bounds}
            file.write(json.dumps(row) + "\n")
            print(
                label,
                f"score {played.score:.1f}",
                {k: round(float(v), 1) for k, v in numbers.items()},
                bounds,
                flush=True,
            )


if __name__ == "__main__":
    main()
