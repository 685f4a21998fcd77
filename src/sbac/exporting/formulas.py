"""How each kind of policy acts, as a graph: the modes of `sbac.policy.formulas` for any number of states at once.

A policy that chooses among k candidates has an axis for them: states (n, 1, obs), candidates (n, k, act). A network
whose input is several parts side by side adds up the parts' products, so that a state is multiplied once and not k
times.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sbac.exporting.graph import OUTPUT, Graph, Tensor, concatenate, where
from sbac.policy import Floats, Policy
from sbac.policy.splines import MIN_BIN, MIN_SLOPE, TAIL

Arrays = Mapping[str, Floats]


@dataclass(frozen=True)
class Part:
    """A part of a network's input, with the length of its last axis."""

    value: Tensor
    width: int


def write_down(policy: Policy) -> Graph:
    """From observations (n, obs) to actions (n, act), both in the environment's units."""
    graph, arrays = Graph(), policy.arrays
    size = len(arrays["scale/observation_mean"])
    s = graph.input() - graph.constant(arrays["scale/observation_mean"])
    s = s / graph.constant(arrays["scale/observation_std"])
    low, high = arrays["scale/action_low"], arrays["scale/action_high"]
    a = EXPORTED[policy.kind](graph, arrays, Part(s, size))
    a = a * graph.constant(0.5 * (high - low)) + graph.constant(0.5 * (high + low))
    a.at_least(graph.constant(low)).at_most(graph.constant(high)).named(OUTPUT)
    return graph


def forward(
    graph: Graph,
    arrays: Arrays,
    name: str,
    parts: Sequence[Part],
    member: int | None = None,
    outputs: int | None = None,
) -> Tensor:
    """The MLP `name` of `arrays`, or a member of a stack of them; its first `outputs` outputs, or all."""

    def array(key: str) -> Floats:
        found = arrays[f"{name}/{key}"]
        return found if member is None else found[member]

    normalise = f"{name}/normalise" in arrays
    last = sum(key.startswith(f"{name}/weights/") for key in arrays) - 1
    x: Tensor | None = None
    for i in range(last + 1):
        weights, biases = array(f"weights/{i}"), array(f"biases/{i}")
        if i == last:
            weights, biases = weights[:, :outputs], biases[:outputs]
        product = _first_product(graph, weights, parts) if x is None else x @ graph.constant(weights)
        x = product + graph.constant(biases)
        if i < last:
            x = x.relu()
            x = x.layer_norm(weights.shape[1]) if normalise else x
    assert x is not None
    return x


def _first_product(graph: Graph, weights: Floats, parts: Sequence[Part]) -> Tensor:
    total: Tensor | None = None
    begin = 0
    for part in parts:
        rows = weights[begin : begin + part.width]
        begin += part.width
        if part.width:
            product = part.value @ graph.constant(rows)
            total = product if total is None else total + product
    assert total is not None and begin == len(weights)
    return total


def bounded_log_std(raw: Tensor) -> Tensor:
    return (raw.tanh() + 1.0) * 3.5 + -5.0


def squashed_network(graph: Graph, arrays: Arrays, s: Part) -> Tensor:
    """tanh of the first outputs: the action of a deterministic policy, or the mode of a Gaussian."""
    return forward(graph, arrays, "policy", [s], outputs=len(arrays["scale/action_low"])).tanh()


def mean_and_log_std(graph: Graph, arrays: Arrays, s: Part) -> tuple[Tensor, Tensor]:
    """Of a tanh-Gaussian before it is squashed."""
    actions, out = len(arrays["scale/action_low"]), forward(graph, arrays, "policy", [s])
    return out.columns(0, actions), bounded_log_std(out.columns(actions, 2 * actions))


# --- Mixtures -----------------------------------------------------------------------------------------------------


def mixture(graph: Graph, arrays: Arrays, s: Part) -> Tensor:
    """One mixture for the whole action: a group of all its dimensions."""
    actions, out = len(arrays["scale/action_low"]), forward(graph, arrays, "policy", [s])
    count = len(arrays[_last(arrays, "policy", "biases")]) // (1 + 2 * actions)
    logits = out.columns(0, count).reshape(-1, 1, count)
    mean = out.columns(count, count * (1 + actions)).reshape(-1, 1, count, actions)
    raw = out.columns(count * (1 + actions), count * (1 + 2 * actions)).reshape(-1, 1, count, actions)
    return densest_mean(logits, mean, raw, count).reshape(-1, actions).tanh()


def mixture_per_dimension(graph: Graph, arrays: Arrays, s: Part) -> Tensor:
    """A mixture for each dimension: as many groups as dimensions."""
    actions, out = len(arrays["scale/action_low"]), forward(graph, arrays, "policy", [s])
    count = len(arrays[_last(arrays, "policy", "biases")]) // (3 * actions)
    size = actions * count
    logits = out.columns(0, size).reshape(-1, actions, count)
    mean = out.columns(size, 2 * size).reshape(-1, actions, count, 1)
    raw = out.columns(2 * size, 3 * size).reshape(-1, actions, count, 1)
    return densest_mean(logits, mean, raw, count).reshape(-1, actions).tanh()


def densest_mean(logits: Tensor, mean: Tensor, raw: Tensor, count: int) -> Tensor:
    """Of every group the component mean at which its mixture is densest: (n, groups, dimensions).

    logits: (n, groups, parts); mean and raw: (n, groups, parts, dimensions).
    """
    log_std = bounded_log_std(raw)
    spread = log_std.sum().unsqueeze(-2)  # (n, groups, 1, parts)
    z = (mean.unsqueeze(-2) - mean.unsqueeze(-3)) / log_std.exp().unsqueeze(-3)  # (n, groups, at, parts, dimensions)
    weights = logits.log_softmax().unsqueeze(-2)
    density = (weights - (z * z).sum() * 0.5 - spread).log_sum_exp()
    return (mean * density.is_largest(count).unsqueeze()).sum(-2)


def _last(arrays: Arrays, name: str, what: str) -> str:
    """The name of the last array `what` of a network."""
    return f"{name}/{what}/{sum(key.startswith(f'{name}/{what}/') for key in arrays) - 1}"


# --- Flows --------------------------------------------------------------------------------------------------------


def flow(graph: Graph, arrays: Arrays, s: Part) -> Tensor:
    """The densest of the candidates whose noise the policy carries."""
    noise = arrays["noise"]
    count, actions = noise.shape
    mean, log_std = (value.unsqueeze(-2) for value in mean_and_log_std(graph, arrays, s))
    state = Part(s.value.unsqueeze(-2), s.width)
    z = mean * 0.0 + graph.constant(noise[None])  # (n, k, act)
    log_density = graph.constant(-0.5 * (noise**2).sum(-1)[None]) - log_std.sum()  # up to a constant
    layers = sum(key.startswith("coupling") and key.endswith("/weights/0") for key in arrays)
    for layer in range(layers):
        z, log_slopes = coupling(graph, arrays, layer, state, Part(z, actions))
        log_density = log_density - log_slopes
    u = mean + log_std.exp() * z
    return (u * log_density.is_largest(count).unsqueeze()).sum(-2).tanh()


def coupling(graph: Graph, arrays: Arrays, layer: int, s: Part, z: Part) -> tuple[Tensor, Tensor]:
    """Even layers move the second half of the dimensions, odd ones the first; the other half steers."""
    half, even = z.width // 2, layer % 2 == 0
    first, second = Part(z.value.columns(0, half), half), Part(z.value.columns(half, z.width), z.width - half)
    steering, moved = (first, second) if even else (second, first)
    name = f"coupling{layer}"
    bins = (len(arrays[_last(arrays, name, "biases")]) // moved.width + 1) // 3
    count = len(arrays["noise"]) if steering.width else 1  # without steering all candidates have one spline
    raw = forward(graph, arrays, name, [s, steering]).reshape(-1, count, moved.width, 3 * bins - 1)
    value, log_slopes = spline(graph, moved.value, raw, bins)
    if not steering.width:
        return value, log_slopes.sum()
    halves = (steering.value, value) if even else (value, steering.value)
    return concatenate(halves), log_slopes.sum()


def spline(graph: Graph, value: Tensor, raw: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """`sbac.policy.splines.spline`, not inverted: the moved value, and the log of the slope there."""
    x, y = places(graph, raw.columns(0, bins), bins), places(graph, raw.columns(bins, 2 * bins), bins)
    offset = math.log(math.expm1(1 - MIN_SLOPE))
    inner = (raw.columns(2 * bins, 3 * bins - 1) + offset).softplus() + MIN_SLOPE
    edge = inner.columns(0, 1) * 0.0 + 1.0
    slopes = concatenate([edge, inner, edge])
    outside = value.abs().is_at_least(graph.constant(TAIL))
    at = where(outside, graph.constant(0.0), value)
    passed = at.unsqueeze().is_at_least(x.columns(1, bins))
    none = passed.columns(0, 1) * 0.0
    in_bin = concatenate([none + 1.0, passed]) - concatenate([passed, none])  # 1 in the bin of the value
    x0, y0, d0 = ((table.columns(0, bins) * in_bin).sum() for table in (x, y, slopes))
    x1, y1, d1 = ((table.columns(1, bins + 1) * in_bin).sum() for table in (x, y, slopes))
    secant = (y1 - y0) / (x1 - x0)
    bend = d0 + d1 - secant * 2.0
    t = (at - x0) / (x1 - x0)
    rest = t * -1.0 + 1.0
    below = secant + bend * t * rest
    slope = d1 * t * t + secant * 2.0 * t * rest + d0 * rest * rest
    log_slope = secant.log() * 2.0 + slope.log() - below.log() * 2.0
    moved = y0 + (y1 - y0) * (secant * t * t + d0 * t * rest) / below
    return where(outside, value, moved), where(outside, graph.constant(0.0), log_slope)


def places(graph: Graph, logits: Tensor, bins: int) -> Tensor:
    """The knots, from -TAIL to TAIL; a bin's share of the way is at least MIN_BIN."""
    shares = logits.softmax() * (1 - MIN_BIN * bins) + MIN_BIN
    ends = shares @ graph.constant(np.triu(np.ones((bins, bins)))[:, :-1])  # cumulative sums
    edge = ends.columns(0, 1) * 0.0
    return (concatenate([edge, ends, edge + 1.0]) * 2.0 - 1.0) * TAIL


# --- The best of some candidates ----------------------------------------------------------------------------------


def best_of_gaussian(graph: Graph, arrays: Arrays, s: Part) -> Tensor:
    """Candidates tanh(mean + std * noise)."""
    mean, log_std = (value.unsqueeze(-2) for value in mean_and_log_std(graph, arrays, s))
    return best_by_critic(graph, arrays, s, (mean + log_std.exp() * graph.constant(arrays["noise"][None])).tanh())


def best_of_vae(graph: Graph, arrays: Arrays, s: Part) -> Tensor:
    """Candidates decoded from codes and moved by at most `size`."""
    codes, actions = arrays["codes"], len(arrays["scale/action_low"])
    state = Part(s.value.unsqueeze(-2), s.width)
    a = forward(graph, arrays, "decoder", [state, Part(graph.constant(codes[None]), codes.shape[1])]).tanh()
    moved = forward(graph, arrays, "perturbation", [state, Part(a, actions)]).tanh()
    return best_by_critic(graph, arrays, s, (a + moved * graph.constant(arrays["size"])).at_least(-1.0).at_most(1.0))


def best_by_critic(graph: Graph, arrays: Arrays, s: Part, candidates: Tensor) -> Tensor:
    """Of (n, k, act) candidate actions the one of highest mean Q at each of the n states."""
    count = len(arrays["noise"] if "noise" in arrays else arrays["codes"])
    parts = [Part(s.value.unsqueeze(-2), s.width), Part(candidates, len(arrays["scale/action_low"]))]
    members = range(len(arrays["critic/weights/0"]))
    first, *others = (forward(graph, arrays, "critic", parts, member) for member in members)
    total = first
    for values in others:
        total = total + values
    return (candidates * total.squeeze().is_largest(count).unsqueeze()).sum(-2)


Formula = Callable[[Graph, Arrays, Part], Tensor]
EXPORTED: dict[str, Formula] = {
    "deterministic": squashed_network,
    "tanh-gaussian": squashed_network,
    "gaussian": squashed_network,
    "tanh-mixture": mixture,
    "tanh-mixture-per-dim": mixture_per_dimension,
    "tanh-flow": flow,
    "best-of-gaussian": best_of_gaussian,
    "best-of-vae": best_of_vae,
}
