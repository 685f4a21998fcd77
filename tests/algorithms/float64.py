"""The networks and densities once more, in plain float64 numpy: the independent side of checks on losses."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def mlp(net: Any, *inputs: npt.ArrayLike) -> Floats:
    """Layers one by one; LayerNorm after ReLU where the network has it."""
    x = np.concatenate([np.asarray(i, np.float64) for i in inputs], -1)
    layers = list(zip(net.weights, net.biases, strict=True))
    for layer, (weight, bias) in enumerate(layers[:-1]):
        x = np.maximum(x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64), 0)
        if net.normalise:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            if net.scales:
                x = x * np.asarray(net.scales[layer], np.float64) + np.asarray(net.offsets[layer], np.float64)
    weight, bias = layers[-1]
    return x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)


def critic(model: Any, *inputs: npt.ArrayLike) -> Floats:
    """(members, batch)."""
    members = len(model.nets.biases[-1])
    each = [
        SimpleNamespace(
            weights=[w[m] for w in model.nets.weights],
            biases=[b[m] for b in model.nets.biases],
            normalise=model.nets.normalise,
            scales=[x[m] for x in model.nets.scales],
            offsets=[x[m] for x in model.nets.offsets],
        )
        for m in range(members)
    ]
    return np.stack([mlp(net, *inputs)[..., 0] for net in each])


def slopes(model: Any, s: npt.ArrayLike, a: npt.ArrayLike) -> Floats:
    """dQ/da of critics of one hidden layer, by the chain rule: (members, batch, act)."""
    x, states = np.concatenate([np.asarray(s, np.float64), a], -1), np.shape(s)[-1]
    members = []
    for first, bias, last in zip(model.nets.weights[0], model.nets.biases[0], model.nets.weights[1], strict=True):
        first, bias, last = (np.asarray(v, np.float64) for v in (first, bias, last))
        members.append(((x @ first + bias > 0) * last[:, 0]) @ first[states:].T)
    return np.stack(members)


def tanh_gaussian(policy: Any, s: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Mean and deviation before the tanh."""
    mean, raw = np.split(mlp(policy.net, s), 2, -1)
    return mean, np.exp(-5 + 3.5 * (np.tanh(raw) + 1))


def log_normal(u: npt.ArrayLike, mean: npt.ArrayLike, std: npt.ArrayLike) -> Floats:
    """Log density of diagonal Gaussians, summed over the last axis."""
    u, mean, std = (np.asarray(x, np.float64) for x in (u, mean, std))
    return (-0.5 * ((u - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)).sum(-1)


def sampled(policy: Any, s: npt.ArrayLike, noise: npt.ArrayLike) -> tuple[Floats, Floats]:
    """A tanh-Gaussian's actions before the tanh, and the log densities of the actions themselves."""
    mean, std = tanh_gaussian(policy, s)
    u = mean + std * np.asarray(noise, np.float64)
    return u, log_normal(u, mean, std) - np.log(1 - np.tanh(u) ** 2).sum(-1)


def log_tanh_normal(a: npt.ArrayLike, mean: Floats, std: Floats) -> Floats:
    """Log density of tanh(u) at an action, clipped as the package does."""
    a = np.clip(np.asarray(a, np.float64), -0.999, 0.999)
    return log_normal(np.arctanh(a), mean, std) - np.log(1 - a**2).sum(-1)
