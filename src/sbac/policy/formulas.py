"""The formulas of all kinds of policies in numpy, over the arrays that training made."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.policy.splines import spline

Floats = NDArray[np.floating[Any]]


def forward(arrays: Mapping[str, Floats], name: str, x: Floats) -> Floats:
    """The MLP `name`: weights `name/weights/i`, biases `name/biases/i`; LayerNorm after ReLU where flagged."""
    normalise = f"{name}/normalise" in arrays
    last = sum(key.startswith(f"{name}/weights/") for key in arrays) - 1
    lead, x = x.shape[:-1], x.reshape(-1, x.shape[-1])  # one product of many rows, not one for each of many stacks
    for i in range(last):
        x = x @ arrays[f"{name}/weights/{i}"]
        x += arrays[f"{name}/biases/{i}"]
        np.maximum(x, 0.0, out=x)
        if normalise:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    x = x @ arrays[f"{name}/weights/{last}"] + arrays[f"{name}/biases/{last}"]
    return x.reshape(*lead, x.shape[-1])


def ensemble(arrays: Mapping[str, Floats], name: str, x: Floats) -> Floats:
    """Scalar outputs of every member of a stacked MLP: (members, n)."""
    members = len(arrays[f"{name}/weights/0"])
    prefix = f"{name}/"
    rows = [
        forward({k: v[m] if "/normalise" not in k else v for k, v in arrays.items() if k.startswith(prefix)}, name, x)
        for m in range(members)
    ]
    return np.stack(rows)[..., 0]


# The constants of these three are those of sbac.nn.gaussian; a test compares them.


def bounded_log_std(raw: Floats) -> Floats:
    """A network's output squashed into [-5, 2]."""
    return -5.0 + 3.5 * (np.tanh(raw) + 1.0)


def pre_tanh(a: Floats) -> Floats:
    """u = atanh(a), with a clipped away from the bounds."""
    return np.arctanh(np.clip(a, -1 + 1e-3, 1 - 1e-3))


def log_tanh_slope(u: Floats) -> Floats:
    """log(1 - tanh(u)^2)."""
    return 2.0 * (math.log(2.0) - u - np.logaddexp(0.0, -2.0 * u))


class Formula:
    """How a kind of policy acts. Works in the networks' units: standardised states, actions in [-1, 1]."""

    has_density = False

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        raise NotImplementedError

    def sample(self, arrays: Mapping[str, Floats], s: Floats, rng: np.random.Generator) -> Floats:
        """Stochastic kinds draw; the others repeat their mode."""
        return self.mode(arrays, s)

    def log_prob(self, arrays: Mapping[str, Floats], s: Floats, a: Floats) -> Floats:
        raise NotImplementedError


class Deterministic(Formula):
    """a = tanh(net(s))."""

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        return np.tanh(forward(arrays, "policy", s))


class TanhGaussian(Formula):
    """a = tanh(u), u Gaussian with mean and bounded log-std from one network (sbac.nn.gaussian)."""

    has_density = True

    def parts(self, arrays: Mapping[str, Floats], s: Floats) -> tuple[Floats, Floats]:
        mean, raw = np.split(forward(arrays, "policy", s), 2, axis=-1)
        return mean, bounded_log_std(raw)

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        return np.tanh(self.parts(arrays, s)[0])

    def sample(self, arrays: Mapping[str, Floats], s: Floats, rng: np.random.Generator) -> Floats:
        mean, log_std = self.parts(arrays, s)
        return np.tanh(mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32))

    def log_prob(self, arrays: Mapping[str, Floats], s: Floats, a: Floats) -> Floats:
        mean, log_std = self.parts(arrays, s)
        u = pre_tanh(a)
        z = (u - mean) * np.exp(-log_std)
        return -(0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi) + log_tanh_slope(u)).sum(-1)


class PlainGaussian(Formula):
    """a Gaussian around tanh(net(s)) with one deviation for all states, not squashed; acting clips it (IQL)."""

    has_density = True

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        return np.tanh(forward(arrays, "policy", s))

    def sample(self, arrays: Mapping[str, Floats], s: Floats, rng: np.random.Generator) -> Floats:
        mean = self.mode(arrays, s)
        return mean + np.exp(arrays["log_std"]) * rng.standard_normal(mean.shape, np.float32)

    def log_prob(self, arrays: Mapping[str, Floats], s: Floats, a: Floats) -> Floats:
        log_std = arrays["log_std"]
        z = (a - self.mode(arrays, s)) * np.exp(-log_std)
        return -(0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def log_sum_exp(x: Floats) -> Floats:
    """log of the sum of exp over the last axis."""
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1)) + top[..., 0]


class TanhMixture(Formula):
    """a = tanh(u), u from mixtures of Gaussians (sbac.nn.behaviour): one for all of u, or one per dimension."""

    has_density = True

    def __init__(self, per_dimension: bool) -> None:
        self.per_dimension = per_dimension

    def parts(self, arrays: Mapping[str, Floats], s: Floats) -> tuple[Floats, Floats, Floats]:
        """Log weights (n, groups, parts), means and log deviations (n, groups, parts, dimensions of a group)."""
        out = forward(arrays, "policy", s)
        actions = len(arrays["scale/action_low"])
        if self.per_dimension:
            logits, mean, raw = np.split(out.reshape(len(s), 3 * actions, -1), 3, axis=1)
            mean, raw = mean[..., None], raw[..., None]
        else:
            count = out.shape[1] // (1 + 2 * actions)
            logits, mean, raw = np.split(out[:, None], [count, count * (1 + actions)], axis=-1)
            mean, raw = (x.reshape(len(s), 1, count, actions) for x in (mean, raw))
        return logits - log_sum_exp(logits)[..., None], mean, bounded_log_std(raw)

    def densities(self, parts: tuple[Floats, Floats, Floats], u: Floats) -> Floats:
        """log density of u (..., n, groups, dimensions of a group), for each group."""
        weights, mean, log_std = parts
        z = (u[..., None, :] - mean) * np.exp(-log_std)
        return log_sum_exp(weights - (0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(-1))

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        """The component mean at which the mixture is densest."""
        parts = self.parts(arrays, s)
        best = self.densities(parts, np.moveaxis(parts[1], 2, 0)).argmax(0)
        return np.tanh(self._pick(parts[1], best))

    def sample(self, arrays: Mapping[str, Floats], s: Floats, rng: np.random.Generator) -> Floats:
        weights, mean, log_std = self.parts(arrays, s)
        which = (weights + rng.gumbel(size=weights.shape)).argmax(-1)
        chosen = self._pick(mean, which)
        return np.tanh(chosen + np.exp(self._pick(log_std, which)) * rng.standard_normal(chosen.shape, np.float32))

    def log_prob(self, arrays: Mapping[str, Floats], s: Floats, a: Floats) -> Floats:
        u = pre_tanh(a)
        parts = self.parts(arrays, np.atleast_2d(s))
        grouped = np.atleast_2d(u).reshape(-1, *parts[1].shape[1::2])
        return self.densities(parts, grouped).sum(-1).reshape(u.shape[:-1]) - log_tanh_slope(u).sum(-1)

    def _pick(self, values: Floats, which: NDArray[np.int64]) -> Floats:
        return np.take_along_axis(values, which[..., None, None], axis=2).reshape(len(values), -1)


class TanhFlow(Formula):
    """a = tanh(u), u a Gaussian passed through coupling layers of splines (sbac.nn.behaviour)."""

    has_density = True

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        """The densest of the candidates whose noise the policy carries."""
        noise = np.repeat(arrays["noise"][:, None], len(s), axis=1)
        u, log_density = self._drawn(arrays, s, noise)
        return np.tanh(u[log_density.argmax(0), np.arange(len(s))])

    def sample(self, arrays: Mapping[str, Floats], s: Floats, rng: np.random.Generator) -> Floats:
        noise = rng.standard_normal((1, len(s), len(arrays["scale/action_low"])), np.float32)
        return np.tanh(self._drawn(arrays, s, noise)[0][0])

    def log_prob(self, arrays: Mapping[str, Floats], s: Floats, a: Floats) -> Floats:
        u, states = pre_tanh(a), np.broadcast_to(s, (*a.shape[:-1], s.shape[-1]))
        mean, log_std = TanhGaussian().parts(arrays, states)
        z, log_slope = (u - mean) * np.exp(-log_std), -log_std.sum(-1)
        for layer in reversed(range(self._layers(arrays))):
            z, log_slopes = self._coupling(arrays, layer, states, z, inverse=True)
            log_slope = log_slope + log_slopes
        return log_standard_normal(z) + log_slope - log_tanh_slope(u).sum(-1)

    def _drawn(self, arrays: Mapping[str, Floats], s: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """u from (candidates, n, act) noise, and its log density."""
        states = np.broadcast_to(s, (len(noise), *s.shape))
        mean, log_std = TanhGaussian().parts(arrays, states)
        z, log_density = noise, log_standard_normal(noise) - log_std.sum(-1)
        for layer in range(self._layers(arrays)):
            z, log_slopes = self._coupling(arrays, layer, states, z, inverse=False)
            log_density = log_density - log_slopes
        return mean + np.exp(log_std) * z, log_density

    def _layers(self, arrays: Mapping[str, Floats]) -> int:
        return sum(key.startswith("coupling") and key.endswith("/weights/0") for key in arrays)

    def _coupling(
        self, arrays: Mapping[str, Floats], layer: int, s: Floats, z: Floats, inverse: bool
    ) -> tuple[Floats, Floats]:
        """Even layers move the second half of the dimensions, odd ones the first; the other half steers."""
        first, second = np.split(z, [z.shape[-1] // 2], axis=-1)
        steering, moved = (first, second) if layer % 2 == 0 else (second, first)
        raw = forward(arrays, f"coupling{layer}", np.concatenate([s, steering], -1)).reshape(*moved.shape, -1)
        moved, log_slopes = spline(moved, raw, inverse)
        halves = (steering, moved) if layer % 2 == 0 else (moved, steering)
        return np.concatenate(halves, axis=-1), log_slopes.sum(-1)


def log_standard_normal(z: Floats) -> Floats:
    return -(0.5 * z**2 + 0.5 * math.log(2 * math.pi)).sum(-1)


def best_by_critic(arrays: Mapping[str, Floats], s: Floats, candidates: Floats) -> Floats:
    """Of (k, n, act) candidate actions the one of highest mean Q at each of the n states."""
    rows = np.concatenate([np.broadcast_to(s, (len(candidates), *s.shape)), candidates], -1)
    values = ensemble(arrays, "critic", rows.reshape(-1, rows.shape[-1])).mean(0).reshape(candidates.shape[:2])
    return candidates[values.argmax(0), np.arange(len(s))]


class BestOf(Formula):
    """The candidate of highest Q; the candidates come from noise that is fixed for `mode` and fresh for `sample`."""

    block = 256  # states at a time: candidates times network width is much memory

    def fixed(self, arrays: Mapping[str, Floats]) -> Floats:
        """The noise that the policy carries: (k, size)."""
        raise NotImplementedError

    def fresh(self, arrays: Mapping[str, Floats], shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        raise NotImplementedError

    def candidates(self, arrays: Mapping[str, Floats], s: Floats, noise: Floats) -> Floats:
        """Actions (k, n, act) from noise (k, n, size)."""
        raise NotImplementedError

    def mode(self, arrays: Mapping[str, Floats], s: Floats) -> Floats:
        fixed = self.fixed(arrays)[:, None]
        return self._best(arrays, s, lambda n: np.broadcast_to(fixed, (len(fixed), n, fixed.shape[-1])))

    def sample(self, arrays: Mapping[str, Floats], s: Floats, rng: np.random.Generator) -> Floats:
        k, size = self.fixed(arrays).shape
        return self._best(arrays, s, lambda n: self.fresh(arrays, (k, n, size), rng))

    def _best(self, arrays: Mapping[str, Floats], s: Floats, noise: Callable[[int], Floats]) -> Floats:
        blocks = [s[i : i + self.block] for i in range(0, max(len(s), 1), self.block)]
        return np.concatenate([best_by_critic(arrays, b, self.candidates(arrays, b, noise(len(b)))) for b in blocks])


class BestOfGaussian(BestOf):
    """Candidates tanh(mean + std * noise) of a tanh-Gaussian, the noise cut at `noise_limit` (BEAR, BRAC+)."""

    def fixed(self, arrays: Mapping[str, Floats]) -> Floats:
        return arrays["noise"]

    def fresh(self, arrays: Mapping[str, Floats], shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        limit = arrays["noise_limit"]
        return np.clip(rng.standard_normal(shape, np.float32), -limit, limit)

    def candidates(self, arrays: Mapping[str, Floats], s: Floats, noise: Floats) -> Floats:
        mean, log_std = TanhGaussian().parts(arrays, s)
        return np.tanh(mean + np.exp(log_std) * noise)


class BestOfVAE(BestOf):
    """Candidates decoded from codes and moved by at most `size` (BCQ)."""

    def fixed(self, arrays: Mapping[str, Floats]) -> Floats:
        return arrays["codes"]

    def fresh(self, arrays: Mapping[str, Floats], shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        limit = 0.5  # CODE_LIMIT of sbac.nn.vae; a test compares them
        return np.clip(rng.standard_normal(shape, np.float32), -limit, limit)

    def candidates(self, arrays: Mapping[str, Floats], s: Floats, noise: Floats) -> Floats:
        repeated = np.broadcast_to(s, (len(noise), *s.shape))
        a = np.tanh(forward(arrays, "decoder", np.concatenate([repeated, noise], -1)))
        moved = np.tanh(forward(arrays, "perturbation", np.concatenate([repeated, a], -1)))
        return np.clip(a + arrays["size"] * moved, -1.0, 1.0)


FORMULAS: dict[str, Formula] = {
    "deterministic": Deterministic(),
    "tanh-gaussian": TanhGaussian(),
    "gaussian": PlainGaussian(),
    "tanh-mixture": TanhMixture(per_dimension=False),
    "tanh-mixture-per-dim": TanhMixture(per_dimension=True),
    "tanh-flow": TanhFlow(),
    "best-of-gaussian": BestOfGaussian(),
    "best-of-vae": BestOfVAE(),
}
