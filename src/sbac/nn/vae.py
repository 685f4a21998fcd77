"""Conditional variational auto-encoders: the actions that the data hold at a state, as a latent-variable model.

`ActionVAE` decodes a code to one action (BCQ, BEAR). `GaussianVAE` decodes it to a density over pre-tanh actions,
so that it bounds the log-likelihood of an action from below and the KL from a policy from above (BRAC+).
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.nn.gaussian import Gaussian, bounded_log_std, log_tanh_slope
from sbac.nn.mlp import MLP
from sbac.nn.typed import take

CODE_LOG_STD_MIN = -4.0
CODE_LOG_STD_MAX = 2.0  # the prior's is 0; off the data a wider code would overflow the decoder
CODE_LIMIT = 0.5


def kl_divergence(p: Gaussian, q: Gaussian) -> Float[Array, "*batch"]:
    """KL(p || q) of diagonal Gaussians; the tanh changes both densities alike, so that it cancels."""
    spread = jnp.exp(2.0 * (p.log_std - q.log_std)) + ((p.mean - q.mean) * jnp.exp(-q.log_std)) ** 2
    return (0.5 * (spread - 1.0) + q.log_std - p.log_std).sum(-1)


def divergence_from_prior(codes: Gaussian) -> Float[Array, "*batch code"]:
    """KL of the encoder's Gaussian over codes z from the standard normal, per dimension of the code."""
    return 0.5 * (codes.mean**2 + jnp.exp(2.0 * codes.log_std) - 1.0) - codes.log_std


def prior_codes(key: PRNGKeyArray, shape: Sequence[int]) -> Float[Array, "..."]:
    """Codes for acting: the prior, clipped to its core so that decoded actions are likely ones."""
    return jnp.clip(jax.random.normal(key, shape), -CODE_LIMIT, CODE_LIMIT)


Made = TypeVar("Made", bound="VAE")


class VAE(eqx.Module):
    """An encoder of (s, action) and a decoder of (s, z), with codes twice as wide as the actions."""

    encoder: MLP
    decoder: MLP
    outputs_per_action: ClassVar[int]

    @classmethod
    def create(cls: type[Made], key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int) -> Made:
        encoder_key, decoder_key = jax.random.split(key)
        code = 2 * actions
        return cls(
            MLP.create(encoder_key, observations + actions, hidden, 2 * code),
            MLP.create(decoder_key, observations + code, hidden, cls.outputs_per_action * actions),
        )

    @property
    def code_size(self) -> int:
        return self.encoder.biases[-1].shape[-1] // 2

    def encode(self, observations: Float[Array, "*batch obs"], actions: Float[Array, "*batch act"]) -> Gaussian:
        """The Gaussian over codes z."""
        mean, log_std = jnp.split(self.encoder(observations, actions), 2, axis=-1)
        return Gaussian(mean, jnp.clip(log_std, CODE_LOG_STD_MIN, CODE_LOG_STD_MAX))

    def with_prior_codes(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray, count: int
    ) -> tuple[Float[Array, "count batch obs"], Float[Array, "count batch code"]]:
        """Each state `count` times, with codes from the clipped prior: the decoder's arguments."""
        repeated = jnp.broadcast_to(observations, (count, *observations.shape))
        return repeated, prior_codes(key, (*repeated.shape[:-1], self.code_size))


class ActionVAE(VAE):
    """Encodes actions; decodes to one pre-tanh action, scored by squared error after the tanh."""

    outputs_per_action = 1

    def decode(
        self, observations: Float[Array, "*batch obs"], codes: Float[Array, "*batch code"]
    ) -> Float[Array, "*batch act"]:
        """The pre-tanh action of a code."""
        return self.decoder(observations, codes)

    def sample_pre_tanh(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray, count: int
    ) -> Float[Array, "count batch act"]:
        """Pre-tanh actions of `count` codes at each state."""
        return self.decode(*self.with_prior_codes(observations, key, count))

    def loss(
        self, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Reconstruction error plus half the KL from the prior, both averaged over their dimensions."""
        codes = self.encode(observations, actions)
        reconstructed = jnp.tanh(self.decode(observations, codes.sample_pre_tanh(key)))
        return ((reconstructed - actions) ** 2).mean() + 0.5 * divergence_from_prior(codes).mean()


class GaussianVAE(VAE):
    """Encodes pre-tanh actions; decodes to a Gaussian over them."""

    outputs_per_action = 2

    def decode(self, observations: Float[Array, "*batch obs"], codes: Float[Array, "*batch code"]) -> Gaussian:
        mean, raw = jnp.split(self.decoder(observations, codes), 2, axis=-1)
        return Gaussian(mean, bounded_log_std(raw))

    def sample_pre_tanh(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray, count: int
    ) -> Float[Array, "count batch act"]:
        """The decoder's means for `count` codes at each state."""
        return self.decode(*self.with_prior_codes(observations, key, count)).mean

    def central_policy(self) -> MLP:
        """The network from states to the mean decoded from the prior's mean, z = 0: the codes' weights drop out."""
        weights, biases = list(self.decoder.weights), list(self.decoder.biases)
        actions = biases[-1].shape[-1] // 2
        weights[0] = weights[0][..., : -self.code_size, :]
        weights[-1], biases[-1] = weights[-1][..., :actions], biases[-1][..., :actions]
        return MLP(weights, biases)

    def negative_elbo(
        self, observations: Float[Array, "batch obs"], u: Float[Array, "batch act"], key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        """An upper bound of -log density of the actions tanh(u)."""
        codes = self.encode(observations, u)
        likelihood = self.decode(observations, codes.sample_pre_tanh(key)).log_density(u) - log_tanh_slope(u).sum(-1)
        return divergence_from_prior(codes).sum(-1) - likelihood

    def kl_upper_bound(
        self,
        policy: Gaussian,
        observations: Float[Array, "*batch obs"],
        u: Float[Array, "*batch act"],
        key: PRNGKeyArray,
        count: int,
    ) -> Float[Array, "*batch"]:
        """A bound of KL(policy || this model) from above: E_q KL(policy || decoder(z)) + KL(q || prior).

        It holds for every distribution q over codes (chain rule of the KL on pairs of action and code). q is the
        encoder at an action u of the policy, which is where it is tight; the expectation takes `count` codes.
        """
        codes = self.encode(observations, u)
        repeated = jnp.broadcast_to(observations, (count, *observations.shape))
        decoded = self.decode(repeated, codes.sample_pre_tanh(key, (count,)))
        return kl_divergence(policy, decoded).mean(0) + divergence_from_prior(codes).sum(-1)


class VAEEnsemble(eqx.Module):
    """Several Gaussian VAEs, trained independently; their bounds are averaged and their samples pooled."""

    members: GaussianVAE

    @classmethod
    def create(
        cls, key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int, count: int
    ) -> "VAEEnsemble":
        def one(k: PRNGKeyArray) -> GaussianVAE:
            return GaussianVAE.create(k, observations, hidden, actions)

        return cls(jax.vmap(one)(jax.random.split(key, count)))

    def negative_elbos(
        self, observations: Float[Array, "batch obs"], u: Float[Array, "batch act"], key: PRNGKeyArray
    ) -> Float[Array, " members"]:
        return self._each(key, lambda vae, k: vae.negative_elbo(observations, u, k).mean())

    def kl_upper_bound(
        self,
        policy: Gaussian,
        observations: Float[Array, "batch obs"],
        u: Float[Array, "samples batch act"],
        key: PRNGKeyArray,
        count: int,
    ) -> Float[Array, " batch"]:
        repeated = jnp.broadcast_to(observations, (len(u), *observations.shape))
        return self._each(key, lambda vae, k: vae.kl_upper_bound(policy, repeated, u, k, count)).mean((0, 1))

    def sample_pre_tanh(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray, count: int
    ) -> Float[Array, "pooled batch act"]:
        each = self._each(key, lambda vae, k: vae.sample_pre_tanh(observations, k, count))
        return each.reshape(-1, *each.shape[2:])

    def central_policy(self) -> MLP:
        """That of the first member."""
        return take(self.members, 0).central_policy()

    def _each(self, key: PRNGKeyArray, function: Callable[[GaussianVAE, PRNGKeyArray], Array]) -> Array:
        keys = jax.random.split(key, len(self.members.decoder.biases[0]))
        return jax.vmap(function)(self.members, keys)
