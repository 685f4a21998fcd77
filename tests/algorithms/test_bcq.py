"""BCQ: its losses, gradients and acting against float64 numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import bcq
from sbac.nn import ActionVAE
from sbac.nn.vae import CODE_LIMIT
from sbac.policy.formulas import BestOfVAE
from tests.algorithms import float64, harness

CONFIG = bcq.BCQConfig(
    hidden=(5,), vae_hidden=(6,), discount=0.9, perturbation=0.3, minimum_weight=0.7, target_candidates=4
)


@pytest.fixture(scope="module")
def state() -> bcq.State:
    made, other = harness.two_states(bcq.init, CONFIG)
    return bcq.State(made.vae, made.critic, other.critic_target, made.actor, other.actor_target)


def proposals(vae: ActionVAE, s: jax.Array, key: jax.Array, count: int) -> np.ndarray:
    codes = np.clip(np.asarray(jax.random.normal(key, (count, len(s), 4)), np.float64), -0.5, 0.5)
    return np.stack([np.tanh(float64.mlp(vae.decoder, s, z)) for z in codes])


def moved(net: object, s: jax.Array, a: np.ndarray) -> np.ndarray:
    return np.clip(a + 0.3 * np.tanh(float64.mlp(net, s, a)), -1, 1)


def test_vae_loss_and_gradient(state: bcq.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(5)
    s, a = (np.asarray(x, np.float64) for x in batch.rows)
    noise = harness.normal(key, 6, 4)

    def expected(vae: ActionVAE) -> float:
        mean, log_std = np.split(float64.mlp(vae.encoder, s, a), 2, -1)
        std = np.exp(np.clip(log_std, -4, 2))
        reconstructed = np.tanh(float64.mlp(vae.decoder, s, mean + std * noise))
        kl = -0.5 * (1 + np.log(std**2) - mean**2 - std**2)
        return float(((reconstructed - a) ** 2).mean() + 0.5 * kl.mean())

    harness.assert_loss(lambda m: bcq.vae_loss(m, batch, key)[0], expected, state.vae.model)


def test_target_is_the_best_of_perturbed_proposals(state: bcq.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    s = batch.next_observations
    values = np.stack(
        [
            float64.critic(state.critic_target, s, moved(state.actor_target, s, a))
            for a in proposals(state.vae.model, s, key, 4)
        ]
    )
    best = (0.7 * values.min(1) + 0.3 * values.max(1)).max(0)
    ours = jax.jit(lambda s: bcq.targets(CONFIG, s, batch, key))(state)
    harness.assert_target(ours, batch, best)


def test_actor_loss_and_gradient(state: bcq.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)
    proposed = proposals(state.vae.model, batch.observations, key, 1)[0]

    def expected(actor: object) -> float:
        a = moved(actor, batch.observations, proposed)
        return float(-float64.critic(state.critic.model, batch.observations, a)[0].mean())

    harness.assert_loss(lambda m: bcq.actor_loss(m, CONFIG, state, batch, key)[0], expected, state.actor.model)


def test_acting_takes_the_best_candidate_by_the_first_critic(state: bcq.State) -> None:
    actor = bcq.actor(CONFIG, {}, state)
    s = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    codes = np.asarray(actor.constants["codes"])
    assert codes.shape == (100, 4)
    assert np.abs(codes).max() == CODE_LIMIT
    proposed = [np.tanh(float64.mlp(state.vae.model.decoder, s, np.tile(z, (300, 1)))) for z in codes]
    candidates = np.stack([moved(state.actor.model, jnp.asarray(s), a) for a in proposed])
    values = np.stack([float64.critic(state.critic.model, s, a)[0] for a in candidates])
    policy = harness.policy(actor, actions=2)
    harness.assert_best(policy(s), candidates, values)
    harness.assert_best(policy(s[7])[None], candidates[:, 7:8], values[:, 7:8])
    assert not np.array_equal(policy.sample(s, 1), policy.sample(s, 2))


def test_fresh_codes_are_clipped_like_the_fixed_ones() -> None:
    codes = BestOfVAE().fresh({}, (100, 20), np.random.default_rng(0))
    assert np.abs(codes).max() == CODE_LIMIT
