"""A Gaussian model of what the log does, the measure of how far a policy departs from it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from sbac.nn import GaussianPolicy, Trained, half_cosine, pre_tanh
from sbac.nn.typed import jit, loop
from sbac.policy import Policy
from sbac.trust.evidence import Evidence, Question
from sbac.trust.log import Acts, JudgedLog

STEPS, BATCH, RATE = 3_000, 256, 1e-3
POLICY_STEPS = 10_000
"""Of the clone that may be taken, which acts better than one of 3,000. Distances are measured by the latter."""
NARROWEST = 0.02
"""A deviation of the log counts as at least this, before the tanh: a log without noise has none to measure by."""
COMPARED = 20_000
"""States at which policies are compared with the log."""


def evidence(question: Question) -> list[Evidence]:
    """How far the policies are from the log: nothing of their values."""
    rows = compared_rows(question.log)
    distances = departed(question.log, question.once(cloned), question.actors.at_rows(rows), rows)
    return [
        Evidence(diagnostics={"distance": float(of_policy.mean()), "reach": float(np.quantile(of_policy, 0.9))})
        for of_policy in distances
    ]


def cloned(question: Question) -> GaussianPolicy:
    effort = question.effort
    return clone(question.log, effort.hidden, question.seed, min(STEPS, sum(effort.steps)))


def clone(log: JudgedLog, hidden: tuple[int, ...], seed: int, steps: int = STEPS) -> GaussianPolicy:
    """The log's actions as a Gaussian before the tanh, by maximum likelihood."""
    key = jax.random.key(seed, impl="threefry2x32")
    actions = jnp.asarray(log.units.within_bounds(np.asarray(log.transitions.actions)))
    return _clone(hidden, steps, log.transitions.states, actions, key)


def clone_policy(question: Question) -> Policy:
    """A clone as a policy of the package, which acts by its mean."""
    log, effort = question.log, question.effort
    units, net = log.units, clone(log, effort.hidden, question.seed, min(POLICY_STEPS, sum(effort.steps))).net
    arrays = {
        "scale/observation_mean": units.observation_mean,
        "scale/observation_std": units.observation_std,
        "scale/action_low": log.data.action_low,
        "scale/action_high": log.data.action_high,
        **{f"policy/weights/{i}": np.asarray(weights) for i, weights in enumerate(net.weights)},
        **{f"policy/biases/{i}": np.asarray(biases) for i, biases in enumerate(net.biases)},
    }
    described = {"algorithm": "bc", "seed": question.seed, "label": "clone", "columns": log.data.columns}
    return Policy("tanh-gaussian", arrays, {**described, "grid": []})


@partial(jit, static=(0, 1))
def _clone(hidden: tuple[int, ...], steps: int, states: Array, actions: Array, key: PRNGKeyArray) -> GaussianPolicy:
    first_key, batch_key = jax.random.split(key)
    start = Trained.create(GaussianPolicy.create(first_key, states.shape[1], hidden, actions.shape[1]))

    def step(i: Array, trained: Trained[GaussianPolicy]) -> Trained[GaussianPolicy]:
        rows = jax.random.randint(jax.random.fold_in(batch_key, i), (BATCH,), 0, len(states))

        def loss(policy: GaussianPolicy) -> tuple[Array, None]:
            return -policy(states[rows]).log_density(pre_tanh(actions[rows])).mean(), None

        return trained.minimise(loss, RATE * half_cosine(i, steps))[0]

    return loop(steps, step, start).model


def behaviour_at(model: GaussianPolicy, states: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of the log's actions before the tanh."""
    gaussian = model(jnp.asarray(states))
    return np.asarray(gaussian.mean), np.maximum(np.exp(np.asarray(gaussian.log_std)), NARROWEST)


def departures(log: JudgedLog, model: GaussianPolicy, policy: Acts, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far a policy's action lies from the log's mean action, in the log's own deviations, at rows of the dataset.

    The root of the mean square over the dimensions of the action.
    """
    return departed(log, model, log.act(policy, log.data.observations[rows])[None], rows)[0]


def departed(
    log: JudgedLog, model: GaussianPolicy, actions: NDArray[np.float32], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The same of several policies' actions at these rows, in the networks' units: (policies, rows, act)."""
    mean, deviation = behaviour_at(model, log.units.states(log.data.observations[rows]))
    before = np.stack([np.asarray(pre_tanh(jnp.asarray(log.units.within_bounds(part)))) for part in actions])
    return np.sqrt((((before - mean) / deviation) ** 2).mean(-1, dtype=np.float64))


def compared_rows(log: JudgedLog) -> NDArray[np.int64]:
    """Rows spread evenly over the log."""
    count = min(COMPARED, len(log.data))
    return np.linspace(0, len(log.data) - 1, count).astype(np.int64)
