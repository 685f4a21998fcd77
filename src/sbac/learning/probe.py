"""How fast this machine trains: a few hundred steps of networks of the log's size."""

import time

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from sbac.nn import MLP, Trained
from sbac.nn.typed import jit, loop

NETWORKS, HIDDEN, BATCH, STEPS = 10, (64, 64), 128, 80
RUNS = 5
"""The quickest counts: others at work only slow one down. What is slower in the end is dropped after a candidate."""
USUAL = {"cpu": 0.14, "gpu": 0.02}
"""Seconds of a run on the machines that the costs in the table of plans are those of."""


def device_kind() -> str:
    """`cpu`, or `gpu` for every accelerator."""
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def slowness(observations: int, actions: int) -> float:
    """The time that this machine takes, for one second of the machine that the table of plans is about."""
    key, inputs = jax.random.key(0, impl="threefry2x32"), jnp.zeros((BATCH, observations + actions))
    _train(inputs, key).block_until_ready()  # compiles
    times: list[float] = []
    for _ in range(RUNS):
        began = time.monotonic()
        _train(inputs, key).block_until_ready()
        times.append(time.monotonic() - began)
    return min(times) / USUAL[device_kind()]


@jit
def _train(inputs: Array, key: PRNGKeyArray) -> Array:
    """Adam steps of several networks side by side, which is what every method spends its time on."""

    def one(key: PRNGKeyArray) -> Array:
        def step(_: Array, trained: Trained[MLP]) -> Trained[MLP]:
            def loss(net: MLP) -> tuple[Array, None]:
                return ((net.scalar(inputs) - 1.0) ** 2).mean(), None

            return trained.minimise(loss, 1e-3)[0]

        net = MLP.create(key, inputs.shape[1], HIDDEN, 1, normalise=True)
        return loop(STEPS, step, Trained.create(net)).model.scalar(inputs).mean()

    return jax.vmap(one)(jax.random.split(key, NETWORKS)).mean()
