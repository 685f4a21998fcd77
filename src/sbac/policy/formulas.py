"""How each kind of policy acts, written once for numpy, JAX and ONNX.

A formula computes with the functions of its input's namespace, `__array_namespace__`. With an array of numpy it acts.
With one of JAX it acts on a device, or becomes StableHLO. With a tensor of `sbac.exporting.onnx_file` it becomes a
graph of ONNX. The number of rows is then unknown, so all sizes come from the policy's arrays. Samples and densities
are for numpy alone.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Numbers = Any
"""An array of numpy or of JAX, or a tensor of ONNX."""
Arrays = Mapping[str, Numbers]


def forward(arrays: Arrays, name: str, x: Numbers, member: int | None = None) -> Numbers:
    """The MLP `name`: weights `name/weights/i`, biases `name/biases/i`; LayerNorm after ReLU where flagged.

    member: which one of a stack of MLPs.
    """
    xp = x.__array_namespace__()
    normalise = f"{name}/normalise" in arrays
    last = layers(arrays, name) - 1
    for i in range(last + 1):
        weights, biases = arrays[f"{name}/weights/{i}"], arrays[f"{name}/biases/{i}"]
        x = x @ (weights if member is None else weights[member])
        x += biases if member is None else biases[member]
        if i < last:
            x = xp.maximum(x, 0.0)
            if normalise:
                x = x - x.mean(-1, keepdims=True)
                x = x / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x


def layers(arrays: Arrays, name: str) -> int:
    """How many layers the MLP `name` has, at least 1."""
    count = 1
    while f"{name}/weights/{count}" in arrays:
        count += 1
    return count


def outputs(arrays: Arrays, name: str) -> int:
    """How many numbers the MLP `name` gives for a row."""
    return arrays[f"{name}/biases/{layers(arrays, name) - 1}"].shape[-1]


def side_by_side(s: Numbers, x: Numbers, width: int) -> Numbers:
    """Rows of a state beside each of its k parts: s (n, obs) and x (n, k, size) or (k, size) to (n k, width)."""
    s = s[..., None, :]
    # Adding a column of zeros repeats the rows of one for those of the other.
    rows = s.__array_namespace__().concat([s + 0.0 * x[..., :1], x + 0.0 * s[..., :1]], axis=-1)
    return rows.reshape(-1, width)  # one product of many rows, not one for each of many stacks


def pick(values: Numbers, which: Numbers, count: int) -> Numbers:
    """Of (..., count, size) values those with the numbers `which` (..., 1)."""
    chosen = which.__array_namespace__().equal(which, np.arange(count))
    return (values * chosen[..., None]).sum(-2)


# The constants of these three are those of sbac.nn.gaussian; a test compares them.


def bounded_log_std(raw: Numbers) -> Numbers:
    """A network's output squashed into [-5, 2]."""
    return -5.0 + 3.5 * (raw.__array_namespace__().tanh(raw) + 1.0)


def pre_tanh(a: Floats) -> Floats:
    """u = atanh(a), with a clipped away from the bounds."""
    return np.arctanh(np.clip(a, -1 + 1e-3, 1 - 1e-3))


def log_tanh_slope(u: Floats) -> Floats:
    """log(1 - tanh(u)^2)."""
    return 2.0 * (math.log(2.0) - u - np.logaddexp(0.0, -2.0 * u))


def drawn(mean: Floats, log_std: Floats, rng: np.random.Generator) -> Floats:
    """Gaussian numbers."""
    return mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32)


class Formula:
    """How a kind of policy acts. Works in the networks' units: standardised states, actions in [-1, 1]."""

    has_density = False
    rows_at_once = sys.maxsize
    """Of a batch in numpy; a bound for kinds that take much memory for a row."""

    def act(self, arrays: Arrays, observations: Numbers) -> Numbers:
        """The one action for each of the observations (n, obs), in any namespace; both in the environment's units."""
        return within_bounds(arrays, self.mode(arrays, standardised(arrays, observations)))

    def mode(self, arrays: Arrays, s: Numbers) -> Numbers:
        """The one action at each of the states (n, obs), in any namespace."""
        raise NotImplementedError

    def sample(self, arrays: Arrays, s: Floats, rng: np.random.Generator) -> Floats:
        """Stochastic kinds draw; the others repeat their mode."""
        return self.mode(arrays, s)

    def log_prob(self, arrays: Arrays, s: Floats, a: Floats) -> Floats:
        raise NotImplementedError


class Deterministic(Formula):
    """a = tanh(net(s))."""

    def mode(self, arrays: Arrays, s: Numbers) -> Numbers:
        return s.__array_namespace__().tanh(forward(arrays, "policy", s))


class TanhGaussian(Formula):
    """a = tanh(u), u Gaussian with mean and bounded log-std from one network (sbac.nn.gaussian)."""

    has_density = True

    def parts(self, arrays: Arrays, s: Numbers) -> tuple[Numbers, Numbers]:
        out, actions = forward(arrays, "policy", s), outputs(arrays, "policy") // 2
        return out[..., :actions], bounded_log_std(out[..., actions:])

    def mode(self, arrays: Arrays, s: Numbers) -> Numbers:
        mean = forward(arrays, "policy", s)[..., : outputs(arrays, "policy") // 2]
        return s.__array_namespace__().tanh(mean)

    def sample(self, arrays: Arrays, s: Floats, rng: np.random.Generator) -> Floats:
        return np.tanh(drawn(*self.parts(arrays, s), rng))

    def log_prob(self, arrays: Arrays, s: Floats, a: Floats) -> Floats:
        mean, log_std = self.parts(arrays, s)
        u = pre_tanh(a)
        z = (u - mean) * np.exp(-log_std)
        return -(0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi) + log_tanh_slope(u)).sum(-1)


class PlainGaussian(Deterministic):
    """a Gaussian around tanh(net(s)) with one deviation for all states, not squashed; acting clips it (IQL)."""

    has_density = True

    def sample(self, arrays: Arrays, s: Floats, rng: np.random.Generator) -> Floats:
        return drawn(self.mode(arrays, s), arrays["log_std"], rng)

    def log_prob(self, arrays: Arrays, s: Floats, a: Floats) -> Floats:
        log_std = arrays["log_std"]
        z = (a - self.mode(arrays, s)) * np.exp(-log_std)
        return -(0.5 * z**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def log_sum_exp(x: Numbers) -> Numbers:
    """log of the sum of exp over the last axis, which stays with length 1."""
    xp, top = x.__array_namespace__(), x.max(-1, keepdims=True)
    return xp.log(xp.exp(x - top).sum(-1, keepdims=True)) + top


class TanhMixture(Formula):
    """a = tanh(u), u from mixtures of Gaussians (sbac.nn.behaviour): one for all of u, or one per dimension."""

    has_density = True

    def __init__(self, per_dimension: bool) -> None:
        self.per_dimension = per_dimension

    def sizes(self, arrays: Arrays) -> tuple[int, int, int]:
        """The groups of dimensions that share a mixture, its parts, and the dimensions of a group."""
        actions = len(arrays["scale/action_low"])
        groups = actions if self.per_dimension else 1
        return groups, outputs(arrays, "policy") // (groups + 2 * actions), actions // groups

    def parts(self, arrays: Arrays, s: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Log weights (n, groups, parts), means and log deviations (n, groups, parts, dimensions of a group)."""
        out, sizes = forward(arrays, "policy", s), self.sizes(arrays)
        groups, parts, dimensions = sizes
        first, second = groups * parts, groups * parts * (1 + dimensions)
        logits = out[..., :first].reshape(-1, groups, parts)
        mean, raw = out[..., first:second].reshape(-1, *sizes), out[..., second:].reshape(-1, *sizes)
        return logits - log_sum_exp(logits), mean, bounded_log_std(raw)

    def densities(self, parts: tuple[Numbers, Numbers, Numbers], u: Numbers) -> Numbers:
        """log density of each group at k places: u (n, groups, k, dimensions of a group) to (n, groups, k, 1)."""
        weights, mean, log_std = parts[0][..., None, :], parts[1][..., None, :, :], parts[2][..., None, :, :]
        z = (u[..., None, :] - mean) * u.__array_namespace__().exp(-log_std)
        return log_sum_exp(weights - (0.5 * (z * z) + log_std + 0.5 * math.log(2 * math.pi)).sum(-1))

    def mode(self, arrays: Arrays, s: Numbers) -> Numbers:
        """The component mean at which the mixture is densest."""
        parts = self.parts(arrays, s)
        return self._squashed(arrays, parts[1], self.densities(parts, parts[1]).argmax(-2))

    def sample(self, arrays: Arrays, s: Floats, rng: np.random.Generator) -> Floats:
        weights, mean, log_std = self.parts(arrays, s)
        groups, parts, dimensions = self.sizes(arrays)
        which = (rng.gumbel(size=(len(s), groups, parts)) + weights).argmax(-1)[..., None]
        noise = rng.standard_normal((len(s), groups, 1, dimensions), np.float32)
        return self._squashed(arrays, mean + np.exp(log_std) * noise, which)

    def log_prob(self, arrays: Arrays, s: Floats, a: Floats) -> Floats:
        u = pre_tanh(a)
        parts = self.parts(arrays, np.atleast_2d(s))
        groups, _, dimensions = self.sizes(arrays)
        grouped = np.atleast_2d(u).reshape(-1, groups, 1, dimensions)
        return self.densities(parts, grouped)[..., 0, 0].sum(-1).reshape(u.shape[:-1]) - log_tanh_slope(u).sum(-1)

    def _squashed(self, arrays: Arrays, u: Numbers, which: Numbers) -> Numbers:
        """tanh of the parts `which` (n, groups, 1) of u (n, groups, parts, dimensions of a group)."""
        groups, parts, dimensions = self.sizes(arrays)
        return u.__array_namespace__().tanh(pick(u, which, parts).reshape(-1, groups * dimensions))


class BestOf(Formula):
    """The candidate of highest Q; the candidates come from noise that is fixed for `mode` and fresh for `sample`."""

    rows_at_once = 256  # candidates times network width is much memory
    noise: str
    """The array that holds the fixed noise (k, size)."""

    def limit(self, arrays: Arrays) -> Numbers:
        """Where fresh noise is cut."""
        raise NotImplementedError

    def candidates(self, arrays: Arrays, s: Numbers, noise: Numbers) -> Numbers:
        """Actions (n, k, act) from noise (k, size) or (n, k, size)."""
        raise NotImplementedError

    def mode(self, arrays: Arrays, s: Numbers) -> Numbers:
        return self._best(arrays, s, arrays[self.noise])

    def sample(self, arrays: Arrays, s: Floats, rng: np.random.Generator) -> Floats:
        k, size = arrays[self.noise].shape
        return self._best(arrays, s, self.fresh(arrays, (k, len(s), size), rng).swapaxes(0, 1))

    def fresh(self, arrays: Arrays, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        limit = self.limit(arrays)
        return np.clip(rng.standard_normal(shape, np.float32), -limit, limit)

    def _best(self, arrays: Arrays, s: Numbers, noise: Numbers) -> Numbers:
        candidates, count = self.candidates(arrays, s, noise), len(arrays[self.noise])
        members, width, _ = arrays["critic/weights/0"].shape
        rows = side_by_side(s, candidates, width)
        values: Numbers = sum(forward(arrays, "critic", rows, member) for member in range(members))
        return pick(candidates, values.reshape(-1, count, 1).argmax(-2), count)


class BestOfGaussian(BestOf):
    """Candidates tanh(mean + std * noise) of a tanh-Gaussian, the noise cut at `noise_limit` (BEAR, BRAC+)."""

    noise = "noise"

    def limit(self, arrays: Arrays) -> Numbers:
        return arrays["noise_limit"]

    def candidates(self, arrays: Arrays, s: Numbers, noise: Numbers) -> Numbers:
        xp, (mean, log_std) = s.__array_namespace__(), TanhGaussian().parts(arrays, s)
        return xp.tanh(mean[..., None, :] + xp.exp(log_std)[..., None, :] * noise)


class BestOfVAE(BestOf):
    """Candidates decoded from codes and moved by at most `size` (BCQ)."""

    noise = "codes"

    def limit(self, arrays: Arrays) -> Numbers:
        return 0.5  # CODE_LIMIT of sbac.nn.vae; a test compares them

    def candidates(self, arrays: Arrays, s: Numbers, noise: Numbers) -> Numbers:
        a = self._beside(arrays, "decoder", s, noise)
        moved = self._beside(arrays, "perturbation", s, a)
        xp = s.__array_namespace__()
        return xp.minimum(xp.maximum(a + arrays["size"] * moved, -1.0), 1.0)

    def _beside(self, arrays: Arrays, name: str, s: Numbers, x: Numbers) -> Numbers:
        """tanh of the network `name` of each state beside each of its k parts x."""
        out = forward(arrays, name, side_by_side(s, x, len(arrays[f"{name}/weights/0"])))
        return s.__array_namespace__().tanh(out).reshape(-1, len(arrays[self.noise]), outputs(arrays, name))


class Committee(Formula):
    """The mean action of several policies of one kind. The arrays of each stand under `member/0/`, `member/1/`, ..."""

    def __init__(self, member: Formula) -> None:
        self.member, self.rows_at_once = member, member.rows_at_once

    def act(self, arrays: Arrays, observations: Numbers) -> Numbers:
        actions = self.actions(arrays, observations)
        return clipped(arrays, sum(actions) / len(actions))  # the mean may round to beyond a bound

    def actions(self, arrays: Arrays, observations: Numbers) -> list[Numbers]:
        """What each member does, by the scaling and the bounds of its own."""
        return [self.member.act(member, observations) for member in members(arrays)]


def members(arrays: Arrays) -> list[Arrays]:
    """The arrays of each member of a committee."""
    starts = dict.fromkeys(f"member/{name.split('/')[1]}/" for name in arrays if name.startswith("member/"))
    return [{name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)} for start in starts]


SINGLE: dict[str, Formula] = {
    "deterministic": Deterministic(),
    "tanh-gaussian": TanhGaussian(),
    "gaussian": PlainGaussian(),
    "tanh-mixture": TanhMixture(per_dimension=False),
    "tanh-mixture-per-dim": TanhMixture(per_dimension=True),
    "best-of-gaussian": BestOfGaussian(),
    "best-of-vae": BestOfVAE(),
}
COMMITTEE_OF = "committee-of-"
FORMULAS = SINGLE | {COMMITTEE_OF + kind: Committee(formula) for kind, formula in SINGLE.items()}


# --- Between the environment's units and the networks' ------------------------------------------------------------


def standardised(arrays: Arrays, observations: Numbers) -> Numbers:
    return (observations - arrays["scale/observation_mean"]) / arrays["scale/observation_std"]


def within_bounds(arrays: Arrays, a: Numbers) -> Numbers:
    """Actions of [-1, 1] in the environment's units."""
    low, high = arrays["scale/action_low"], arrays["scale/action_high"]
    return clipped(arrays, a * (0.5 * (high - low)) + 0.5 * (high + low))


def clipped(arrays: Arrays, actions: Numbers) -> Numbers:
    """Actions in the environment's units, cut at the bounds."""
    xp = actions.__array_namespace__()
    return xp.minimum(xp.maximum(actions, arrays["scale/action_low"]), arrays["scale/action_high"])


def act(kind: str, arrays: Arrays, observations: Numbers) -> Numbers:
    """The whole policy in any namespace, in the environment's units: observations (n, obs) to actions (n, act)."""
    return FORMULAS[kind].act(arrays, observations)
