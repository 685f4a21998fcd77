"""TD3+BC, IQL and CQL beside d3rlpy 2.8: equal numbers from equal weights, and like scores from the same data.

d3rlpy needs an environment of its own (it pins an older Gymnasium), whose interpreter is given as --peer:

    python -m venv peer && peer/bin/pip install "d3rlpy==2.8.*"
    python benchmarks/against_d3rlpy.py losses --peer peer/bin/python
    python benchmarks/against_d3rlpy.py scores --peer peer/bin/python --data hopper-medium-made --task hopper-medium-v2

`losses` exits with 1 when anything that both define alike differs by more than 1e-4.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sbac
from sbac.algorithms import cql, evaluation, find, iql, td3_bc
from sbac.algorithms.base import Batch, Rows, Spec
from sbac.nn import MLP, Critic, DeterministicPolicy, GaussianPolicy, Trained
from sbac.policy import Policy

OBSERVATIONS, ACTIONS, SIZE, SAMPLES = 11, 3, 64, 5
HIDDEN = (32, 32)
SCORED_HIDDEN = (128, 128)
TOLERANCE = 1e-4
SETTINGS: dict[str, Any] = {
    "hidden": list(HIDDEN),
    "batch_size": SIZE,
    "discount": 0.97,
    "learning_rate": 3e-4,
    "alpha": 2.5,
    "expectile": 0.8,
    "temperature": 0.7,
    "samples": SAMPLES,
}
Arrays = dict[str, np.ndarray]


def ask(peer: str, task: str, name: str, settings: dict[str, Any], arrays: Arrays) -> Arrays:
    """Runs the d3rlpy side on these arrays."""
    with tempfile.TemporaryDirectory() as folder:
        source, destination = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, job=np.asarray(json.dumps([name, settings])), **arrays)
        script = Path(__file__).with_name("d3rlpy_peer.py")
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # networks this small are slower on two
        quiet = subprocess.run([peer, script, task, source, destination], capture_output=True, text=True, env=alone)
        if quiet.returncode:
            sys.exit(f"error: {peer} failed:\n{quiet.stderr}")
        with np.load(destination) as f:
            return dict(f)


def flat(name: str, net: MLP) -> Arrays:
    """Weights, or gradients, of a network by name; of an ensemble, one network after the other."""
    if net.weights[0].ndim == 3:
        return {
            k: v
            for member in range(len(net.weights[0]))
            for k, v in flat(f"{name}{member}", jax.tree.map(lambda x, m=member: x[m], net)).items()
        }
    named = {f"{name}/weights/{i}": w for i, w in enumerate(net.weights)}
    named |= {f"{name}/biases/{i}": b for i, b in enumerate(net.biases)}
    return {k: np.asarray(v) for k, v in named.items()}


def batch_of(rng: np.random.Generator) -> Batch:
    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    actions = jnp.tanh(normal(SIZE, ACTIONS))
    terminals = jnp.asarray(rng.random(SIZE) < 0.2, jnp.float32)
    states, after = normal(SIZE, OBSERVATIONS), normal(SIZE, OBSERVATIONS)
    return Batch(states, actions, normal(SIZE), after, actions, terminals, Rows(states, actions), states)


def named_batch(batch: Batch) -> Arrays:
    names = ("observations", "actions", "rewards", "next_observations", "terminals")
    return {f"batch/{n}": np.asarray(getattr(batch, n)) for n in names}


def gradient(loss: Any, model: Any) -> tuple[np.ndarray, Any]:
    value, slope = eqx.filter_jit(jax.value_and_grad(loss))(model)
    return np.asarray(value), slope


def critics() -> tuple[Critic, Critic]:
    made = [Critic.create(jax.random.key(i), OBSERVATIONS, ACTIONS, HIDDEN) for i in (1, 2)]
    return made[0], made[1]


def compare_td3_bc(peer: str, batch: Batch) -> tuple[Arrays, Arrays]:
    config = td3_bc.TD3BCConfig(discount=SETTINGS["discount"], alpha=SETTINGS["alpha"])
    policies = [DeterministicPolicy.create(jax.random.key(i), OBSERVATIONS, HIDDEN, ACTIONS) for i in (3, 4)]
    critic, target_critic = critics()
    state = td3_bc.State(Trained.create(policies[0]), Trained.create(critic), policies[1], target_critic)
    key = jax.random.key(5)
    weights = {
        **flat("policy", policies[0].net),
        **flat("policy_target", policies[1].net),
        **flat("critic", critic.nets),
        **flat("critic_target", target_critic.nets),
    }
    noise = {"noise/target": np.asarray(jax.random.normal(key, (SIZE, ACTIONS)))}
    theirs = ask(peer, "losses", "td3-bc", SETTINGS, {**weights, **noise, **named_batch(batch)})
    live = batch.terminals == 0
    target = td3_bc.critic_target(config, state, batch, key)
    critic_loss, critic_slope = gradient(lambda q: evaluation.td_loss(q, batch, target)[0], critic)
    policy_loss, policy_slope = gradient(lambda p: td3_bc.policy_loss(config, p, critic, batch)[0], policies[0])
    theirs["target"] = np.where(live, batch.rewards + config.discount * theirs["target"], batch.rewards)
    slopes = {**flat("critic", critic_slope.nets), **flat("policy", policy_slope.net)}
    ours = {"target": np.asarray(target), "critic_loss": critic_loss, "policy_loss": policy_loss}
    return ours | {f"gradient/{k}": v for k, v in slopes.items()}, theirs


def compare_iql(peer: str, batch: Batch) -> tuple[Arrays, Arrays]:
    config = iql.IQLConfig(
        discount=SETTINGS["discount"], expectile=SETTINGS["expectile"], temperature=SETTINGS["temperature"]
    )
    critic, target = critics()
    value = MLP.create(jax.random.key(6), OBSERVATIONS, HIDDEN, 1)
    policy = iql.Policy(MLP.create(jax.random.key(3), OBSERVATIONS, HIDDEN, ACTIONS), jnp.asarray([-1.0, 0.3, 0.0]))
    weights = {
        **flat("policy", policy.net),
        **flat("value", value),
        **flat("critic", critic.nets),
        **flat("critic_target", target.nets),
        "log_std": np.asarray(policy.log_std),
    }
    theirs = ask(peer, "losses", "iql", SETTINGS, {**weights, **named_batch(batch)})
    value_loss, value_slope = gradient(lambda v: iql.value_loss(config, v, target, batch)[0], value)
    critic_loss, critic_slope = gradient(lambda q: iql.critic_loss(config, q, value, batch)[0], critic)
    policy_loss, policy_slope = gradient(lambda p: iql.policy_loss(config, p, value, target, batch, None)[0], policy)
    slopes = {**flat("value", value_slope), **flat("critic", critic_slope.nets), **flat("policy", policy_slope.net)}
    ours = {"value_loss": value_loss, "critic_loss": critic_loss, "policy_loss": policy_loss}
    ours["target"] = np.asarray(value.scalar(batch.next_observations))
    return ours | {f"gradient/{k}": v for k, v in slopes.items()}, theirs


def compare_cql(peer: str, batch: Batch) -> tuple[Arrays, Arrays]:
    """With deviations that do not depend on the state: how they are kept in bounds is each one's own affair."""
    config = cql.CQLConfig(discount=SETTINGS["discount"], alpha=SETTINGS["alpha"], samples=SAMPLES)
    critic, target_critic = critics()
    net = GaussianPolicy.create(jax.random.key(3), OBSERVATIONS, HIDDEN, ACTIONS).net
    raw = jnp.asarray([0.1, -0.2, 0.3])
    weight = net.weights[-1].at[:, ACTIONS:].set(0.0)
    policy = GaussianPolicy(MLP([*net.weights[:-1], weight], [*net.biases[:-1], net.biases[-1].at[ACTIONS:].set(raw)]))
    mean = MLP([*net.weights[:-1], weight[:, :ACTIONS]], [*net.biases[:-1], net.biases[-1][:ACTIONS]])
    key, policy_key = jax.random.key(5), jax.random.key(7)
    uniform_key, here_key, next_key = jax.random.split(key, 3)
    shape = (SAMPLES, SIZE, ACTIONS)
    next_value = target_critic.minimum(batch.next_observations, policy(batch.next_observations).mode())
    arrays = {
        **flat("policy", mean),
        **flat("critic", critic.nets),
        **flat("critic_target", target_critic.nets),
        "log_std": np.asarray(policy(batch.observations).log_std[0]),
        "next_value": np.asarray(next_value),
        "noise/uniform": np.asarray(jax.random.uniform(uniform_key, shape, minval=-1.0, maxval=1.0)),
        "noise/here": np.asarray(jax.random.normal(here_key, shape)),
        "noise/next": np.asarray(jax.random.normal(next_key, shape)),
        "noise/policy": np.asarray(jax.random.normal(policy_key, shape[1:])),
    }
    theirs = ask(peer, "losses", "cql", SETTINGS, {**arrays, **named_batch(batch)})
    proposals = cql.propose(policy, batch, SAMPLES, key)
    target = batch.rewards + config.discount * (1 - batch.terminals) * next_value
    critic_loss, critic_slope = gradient(
        lambda q: cql.critic_loss(config, q, batch, target, proposals, jnp.ones(()))[0], critic
    )
    policy_loss, policy_slope = gradient(
        lambda p: cql.policy_loss(p, critic, jnp.asarray(SETTINGS["temperature"]), batch, policy_key, False)[0], policy
    )
    mean_slope = MLP(
        [*policy_slope.net.weights[:-1], policy_slope.net.weights[-1][:, :ACTIONS]],
        [*policy_slope.net.biases[:-1], policy_slope.net.biases[-1][:ACTIONS]],
    )
    slopes = {**flat("critic", critic_slope.nets), **flat("policy", mean_slope)}
    ours = {"critic_loss": critic_loss, "policy_loss": policy_loss, "target": np.asarray(next_value)}
    ours["penalty"] = np.asarray(config.alpha * cql.penalty(critic, batch, proposals).sum())
    return ours | {f"gradient/{k}": v for k, v in slopes.items()}, theirs


COMPARE = {"td3-bc": compare_td3_bc, "iql": compare_iql, "cql": compare_cql}


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def compare_losses(peer: str) -> int:
    batch = batch_of(np.random.default_rng(0))
    worst = 0.0
    print("| method | quantity | ours | d3rlpy | largest relative difference |\n|---|---|---|---|---|")
    for name, compare in COMPARE.items():
        ours, theirs = compare(peer, batch)
        assert set(ours) == set(theirs), set(ours) ^ set(theirs)
        for quantity in sorted(k for k in ours if not k.startswith("gradient/")):
            gap = difference(ours[quantity], theirs[quantity])
            shown = [f"{float(np.mean(x[quantity])):.6f}" for x in (ours, theirs)]
            print(f"| {name} | {quantity} | {shown[0]} | {shown[1]} | {gap:.1e} |")
            worst = max(worst, gap)
        for network in ("critic", "value", "policy"):
            gaps = [difference(ours[k], theirs[k]) for k in ours if k.startswith(f"gradient/{network}")]
            if gaps:
                print(f"| {name} | gradient of the {network}, {len(gaps)} arrays | | | {max(gaps):.1e} |")
                worst = max(worst, *gaps)
    print(f"\nlargest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    print(
        "Not compared: CQL's bootstrap action (ours is drawn from the policy, d3rlpy's is its mean) and how log sigma"
    )
    print("is kept in bounds (ours by a tanh in CQL and a clip in IQL, d3rlpy's by a clip and a sigmoid).")
    return int(worst > TOLERANCE)


def first_weights(name: str, seed: int, observations: int, actions: int) -> Arrays:
    """A method's networks before their first step."""
    method, spec = find(name), Spec(observations, actions, jnp.zeros((1, observations)))
    state = method.phases[0].init(method.config(hidden=SCORED_HIDDEN), spec, {}, jax.random.key(seed))
    weights = flat("policy", state.policy.model.net) | flat("critic", state.critic.model.nets)
    if name == "td3-bc":
        targets = flat("policy_target", state.policy_target.net) | flat("critic_target", state.critic_target.nets)
        return weights | targets
    weights |= flat("critic_target", state.target.nets) | flat("value", state.value.model)
    return weights | {"log_std": np.asarray(state.policy.model.log_std)}


def compare_scores(peer: str, data: str, task: str, steps: int, seeds: int, episodes: int, names: list[str]) -> int:
    """The same data, networks, rates and steps, and first weights of one kind; each side draws its own batches.

    First weights matter a little: d3rlpy's networks start with random biases, these with none.
    """
    loaded = sbac.load(data)
    mean, std = loaded.observations.mean(0), loaded.observations.std(0) + 1e-3
    low, high = np.asarray(loaded.action_low), np.asarray(loaded.action_high)
    scale = {"mean": mean, "std": std}
    arrays = {
        "observations": ((loaded.observations - mean) / std).astype(np.float32),
        "actions": (2 * (loaded.actions - low) / (high - low) - 1).astype(np.float32),
        "terminals": loaded.terminals.astype(np.float32),
        "timeouts": loaded.timeouts.astype(np.float32),
    }
    sizes = (arrays["observations"].shape[1], arrays["actions"].shape[1])
    print("| method | side | scores | mean | spread |\n|---|---|---|---|---|")
    agree = True
    for name in names:
        span = float(np.ptp(loaded.returns))
        arrays["rewards"] = (loaded.rewards * (1000.0 / span if name == "iql" else 1.0)).astype(np.float32)
        settings = {"hidden": SCORED_HIDDEN, "batch_size": 128, "learning_rate": 3e-4, "discount": 0.99}
        settings |= {"alpha": 2.5} if name == "td3-bc" else {"expectile": 0.7, "temperature": 3.0}
        run = sbac.train(
            loaded,
            algorithm=name,
            seeds=seeds,
            steps=steps,
            evaluate=False,
            standardise_states=True,
            reward_scale="return-range" if name == "iql" else "none",
            validation=0.0,
            **settings,
        )
        policies = {"sbac": list(run.policies), "d3rlpy": list[Policy]()}
        told = {**settings, "hidden": list(settings["hidden"]), "steps": steps}
        with ThreadPoolExecutor(os.cpu_count()) as side_by_side:
            jobs = [
                side_by_side.submit(
                    ask, peer, "train", name, told | {"seed": i}, arrays | first_weights(name, i, *sizes)
                )
                for i in range(seeds)
            ]
            answers = [job.result() for job in jobs]
        for weights in answers:
            weights |= {f"scale/observation_{k}": v for k, v in scale.items()}
            weights |= {"scale/action_low": low, "scale/action_high": high}
            policies["d3rlpy"].append(Policy("deterministic", weights, {}))
        results = {
            side: np.asarray([np.mean(sbac.evaluate(p, task, episodes=episodes, seed=0).scores) for p in made])
            for side, made in policies.items()
        }
        for side, scores in results.items():
            shown = ", ".join(f"{s:.1f}" for s in scores)
            print(f"| {name} | {side} | {shown} | {scores.mean():.1f} | {scores.std(ddof=1):.1f} |", flush=True)
        ours, theirs = results.values()
        spread = np.hypot(ours.std(ddof=1), theirs.std(ddof=1)) / np.sqrt(seeds)
        agree &= bool(abs(ours.mean() - theirs.mean()) <= 2 * spread)
    print(f"\nmeans within two standard errors of their difference: {'yes' if agree else 'no'}")
    return int(not agree)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["losses", "scores"])
    parser.add_argument("--peer", required=True, help="the Python interpreter of an environment with d3rlpy")
    parser.add_argument("--data", default="hopper-demo", help="dataset of `scores`")
    parser.add_argument("--task", default="hopper-medium-v2", help="task that `scores` evaluates in")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--methods", nargs="+", default=["td3-bc", "iql"], choices=["td3-bc", "iql"])
    told = parser.parse_args()
    if told.what == "losses":
        return compare_losses(told.peer)
    return compare_scores(told.peer, told.data, told.task, told.steps, told.seeds, told.episodes, told.methods)


if __name__ == "__main__":
    sys.exit(main())
