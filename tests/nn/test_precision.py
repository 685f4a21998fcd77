"""What networks compute in: rounded where asked, float32 everywhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.nn import MLP, Precision, Trained, precision

NET = MLP.create(jax.random.key(0), 6, (64, 64), 3)
X = jax.random.normal(jax.random.key(1), (200, 6))


def outputs(name: Precision, net: MLP = NET) -> np.ndarray:
    def call(x: jax.Array) -> jax.Array:
        with precision(name):
            return net(x)

    return np.asarray(jax.jit(call)(X))


def in_float64(net: MLP, x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = np.maximum(x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64), 0)
    return x @ np.asarray(net.weights[-1], np.float64) + np.asarray(net.biases[-1], np.float64)


def test_bfloat16_rounds_to_8_bits_and_float32_to_24() -> None:
    exact = in_float64(NET, np.asarray(X, np.float64))
    errors = {name: np.abs(outputs(name) - exact).max() / np.abs(exact).max() for name in ("float32", "bfloat16")}
    assert errors["float32"] < 2e-6
    assert 2**-12 < errors["bfloat16"] < 2**-6


def test_the_last_layer_is_not_rounded() -> None:
    """A value of 300 and one of 301 are the same number in bfloat16."""
    last = [jnp.zeros((64, 3)), jnp.asarray([300.0, 301.0, 0.001])]
    net = MLP([*NET.weights[:-1], last[0]], [*NET.biases[:-1], last[1]])
    np.testing.assert_array_equal(outputs("bfloat16", net)[0], np.asarray([300.0, 301.0, 0.001], np.float32))


def test_weights_and_moments_stay_float32() -> None:
    def loss(net: MLP) -> tuple[jax.Array, None]:
        return (net(X) ** 2).mean(), None

    with precision("bfloat16"):
        stepped, _ = Trained.create(NET).minimise(loss, 1e-3)
    assert {x.dtype for x in jax.tree.leaves((stepped.model, stepped.moments.mu, stepped.moments.nu))} == {
        jnp.dtype("float32")
    }


def test_it_ends_with_its_block() -> None:
    before = outputs("tf32")
    with pytest.raises(RuntimeError), precision("bfloat16"):
        raise RuntimeError
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: NET(x))(X)), before)
