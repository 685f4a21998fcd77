"""VAEs: the Gaussian decoder's bounds against numpy, and against a model whose density is known."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from sbac.nn import MLP, Gaussian, GaussianVAE
from tests.algorithms import float64, harness


def known_model(slope: float, encoder_shift: float) -> tuple[GaussianVAE, float, float]:
    """u = 0.4 + slope z_1 + std noise, so u is Gaussian: the model, and the mean and deviation of u.

    The encoder is any Gaussian over z, the same everywhere.
    """
    raw = 0.2
    std = math.exp(-5 + 3.5 * (math.tanh(raw) + 1))
    decoder = MLP([jnp.zeros((3, 2)).at[1, 0].set(slope)], [jnp.asarray([0.4, raw])])
    encoder = MLP([jnp.zeros((2, 4))], [jnp.asarray([encoder_shift, 0.3, -0.5, 0.1])])
    return GaussianVAE(encoder, decoder), 0.4, math.hypot(slope, std)


def test_negative_elbo_and_gradient() -> None:
    vae = GaussianVAE.create(jax.random.key(0), 3, (5,), 2)
    batch, key = harness.small_batch(), jax.random.key(1)
    s, u = np.asarray(batch.observations, np.float64), np.arctanh(np.asarray(batch.actions, np.float64))
    noise = np.asarray(jax.random.normal(key, (6, 4)), np.float64)

    def expected(model: GaussianVAE) -> float:
        mean, log_std = np.split(float64.mlp(model.encoder, s, u), 2, -1)
        std = np.exp(np.clip(log_std, -4, 2))
        centre, raw = np.split(float64.mlp(model.decoder, s, mean + std * noise), 2, -1)
        spread = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
        likelihood = float64.log_normal(u, centre, spread) - np.log(1 - np.tanh(u) ** 2).sum(-1)
        kl = (-0.5 * (1 + 2 * np.log(std) - mean**2 - std**2)).sum(-1)
        return float((kl - likelihood).mean())

    def loss(model: GaussianVAE) -> jax.Array:
        return model.negative_elbo(batch.observations, jnp.asarray(u, jnp.float32), key).mean()

    harness.assert_loss(loss, expected, vae)


def test_the_elbo_is_below_a_known_log_likelihood() -> None:
    vae, mean, std = known_model(0.9, 0.2)
    u = jnp.linspace(-1, 2, 7)[:, None]
    s = jnp.zeros((7, 1))
    each = jax.jit(jax.vmap(lambda k: vae.negative_elbo(s, u, k)))(jax.random.split(jax.random.key(0), 5000)).mean(0)
    exact = -float64.log_tanh_normal(np.tanh(u), np.full(1, mean), np.full(1, std))
    assert (np.asarray(each) > exact).all()


def test_the_bound_of_the_kl_is_its_formula() -> None:
    """E_q KL(policy || decoder(z)) + KL(q || prior), with q Gaussian and the decoder linear: no sampling needed."""
    vae, mean, _ = known_model(0.9, 0.2)
    policy = Gaussian(jnp.asarray([[0.9]]), jnp.log(jnp.asarray([[0.3]])))
    s, u = jnp.zeros((1, 1)), jnp.asarray([[1.0]])
    std = math.exp(-5 + 3.5 * (math.tanh(0.2) + 1))
    q_mean, q_std = np.asarray([0.2, 0.3]), np.exp([-0.5, 0.1])
    squared = (0.9 - mean - 0.9 * q_mean[0]) ** 2 + (0.9 * q_std[0]) ** 2
    inner = math.log(std / 0.3) + (0.3**2 + squared) / (2 * std**2) - 0.5
    outer = (0.5 * (q_mean**2 + q_std**2 - 1) - np.log(q_std)).sum()
    bound = jax.jit(lambda v: v.kl_upper_bound(policy, s, u, jax.random.key(0), 100_000))(vae)
    np.testing.assert_allclose(bound, [inner + outer], rtol=0.01)


def test_the_central_policy_decodes_the_prior_mean() -> None:
    vae = GaussianVAE.create(jax.random.key(0), 3, (5, 6), 2)
    s = jax.random.normal(jax.random.key(1), (4, 3))
    ours, expected = jax.jit(lambda v: (v.central_policy()(s), v.decode(s, jnp.zeros((4, 4))).mean))(vae)
    np.testing.assert_allclose(ours, expected, atol=1e-6)
