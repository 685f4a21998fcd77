"""One policy for a range of alpha: the arithmetic of the dial, and that caution grows with alpha."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from sbac.algorithms.dial import HIGHEST, LOWEST, RESTING, at_position, dialled_actor, factors, positions, widened
from sbac.nn import GaussianPolicy
from sbac.policy import Policy
from tests.algorithms import problem


def numpy_policy(policy: GaussianPolicy, alpha: float) -> Policy:
    """As the writer makes it from the actor."""
    actor = dialled_actor(policy, alpha)
    net = actor.networks["policy"]
    arrays = {f"policy/weights/{i}": np.asarray(w) for i, w in enumerate(net.weights)}
    arrays |= {f"policy/biases/{i}": np.asarray(b) for i, b in enumerate(net.biases)}
    arrays |= {name: np.asarray(value) for name, value in actor.constants.items()}
    scale = {"observation_mean": np.zeros(3), "observation_std": np.ones(3), "action_low": [-1.0], "action_high": [1.0]}
    arrays |= {f"scale/{name}": np.asarray(value, np.float32) for name, value in scale.items()}
    about = {"algorithm": "sbac", "seed": 0, "label": f"alpha={alpha:g}_seed=0", "grid": ["alpha"], "alpha": alpha}
    return Policy(actor.kind, arrays, about)


def test_positions_cover_the_range_and_the_configs_alpha_stands_where_it_says() -> None:
    assert factors(jnp.array([-1.0, RESTING, 1.0])) == pytest.approx([LOWEST, 1.0, HIGHEST], rel=1e-5)
    drawn = positions(jax.random.key(0), 10_000)
    assert drawn.min() < -0.99 and drawn.max() > 0.99 and abs(float(drawn.mean())) < 0.05


def test_a_new_input_does_nothing_at_first() -> None:
    plain = GaussianPolicy.create(jax.random.key(0), 3, (16, 16), 1)
    s = jax.random.normal(jax.random.key(1), (5, 3))
    moved = at_position(widened(plain), jnp.linspace(-1, 1, 5))(s)
    np.testing.assert_allclose(moved.mean, plain(s).mean, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.125, 0.7, 2.0, 8.0])
def test_the_policy_at_an_alpha_is_the_network_with_the_dial_there(alpha: float) -> None:
    network = GaussianPolicy.create(jax.random.key(0), 4, (16, 16), 1)
    policy = numpy_policy(network, 2.0)
    s = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    dial = -1 + 2 * np.log(alpha / (2.0 * LOWEST)) / np.log(HIGHEST / LOWEST)
    want = at_position(network, jnp.asarray(dial, jnp.float32))(jnp.asarray(s)).mode()
    found = policy.at(alpha=alpha)
    np.testing.assert_allclose(found(s), want, rtol=1e-4, atol=1e-5)
    assert found.config["alpha"] == alpha and found.config["label"] == f"alpha={alpha:g}_seed=0"
    np.testing.assert_allclose(found.at(alpha=2.0)(s), policy(s), rtol=1e-4, atol=1e-5)  # and back


def test_an_alpha_beyond_the_range_is_refused() -> None:
    policy = numpy_policy(GaussianPolicy.create(jax.random.key(0), 4, (16,), 1), 2.0)
    with pytest.raises(sbac.UserError, match="trained for alphas from 0.125 to 8"):
        policy.at(alpha=9.0)


def test_caution_grows_with_alpha() -> None:
    """At its cautious end the policy stays nearer to the clone that it started from than at its bold end."""
    columns: dict[str, Any] = {**problem.dataset(100)}
    data = sbac.Dataset(**columns)
    settings = {"hidden": [32, 32], "batch_size": 64, "discount": problem.DISCOUNT, "critics": 1, "evaluate": False}
    settings |= {"alpha": 64.0, "policy_learning_rate": 3e-3}  # from 4 to 256: smaller ones hold nothing back here
    policy = sbac.train(data, "sbac", steps=[1_000, 1_000], dial=True, **settings).policies[0]
    clone = sbac.train(data, "sbac", steps=[1_000, 0], **settings).policies[0]
    s = data.observations[::10]
    low, high = (float(bound) for bound in policy.arrays["dial/range"])
    assert (low, high) == (4.0, 256.0)
    cautious, bold = (np.abs(policy.at(alpha=alpha)(s) - clone(s)).mean() for alpha in (high, low))
    assert cautious < 0.8 * bold
