"""AlgaeDICE: policy gradients from a dual of the regularised return (Nachum, Dai, Kostrikov, Chow, Li & Schuurmans
2019).

    max_pi min_nu  E_D[f(delta)] + alpha (1 - gamma) E_{s0, a0 ~ pi}[nu(s0, a0)],    f(x) = |x|^p / p
    delta = r + gamma nu(s', a' ~ pi) - nu(s, a)

At the inner optimum f'(delta) is proportional to the visitation ratio d^pi / d^D, so that the outer gradient is
on-policy although no sample is. Initial states come from the data, and only terminal rows stop the bootstrap.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split, when
from sbac.algorithms.evaluation import gaussian_actor, td_target
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Critic, GaussianPolicy, Multiplier, Trained, polyak


@config
class AlgaeDICEConfig(Config):
    steps: tuple[int, ...] = (500_000,)
    hidden: tuple[int, ...] = layers((256, 256))
    alpha: float = per_policy(
        0.01, "Weight of the initial states' value, and so of the divergence between d^pi and the data.", at_least=0
    )
    exponent: float = per_policy(1.5, "p of f(x) = |x|^p / p.", above=1)
    policy_learning_rate: float = rate(1e-3, "Learning rate of the policy.")
    critic_learning_rate: float = rate(1e-3, "Learning rate of nu.")
    temperature: float = per_policy(
        1.0, "First weight of the entropy bonus, which then adapts to an entropy of -|A|.", at_least=0
    )
    temperature_learning_rate: float = rate(1e-3, "Learning rate of that weight; 0: it stays.")
    target_rate: float = polyak_rate(0.005)
    online_share: float = per_policy(
        0.05, "Share of nu itself in nu(s', a'); the rest is the smaller of the targets.", at_least=0, at_most=1
    )
    policy_delay: int = shared(2, "Steps between updates of the policy.", at_least=1)
    orthogonality: float = per_policy(
        1e-4, "Weight of the penalty on inner products between columns of the policy's weights.", at_least=0
    )


class State(eqx.Module):
    policy: Trained[GaussianPolicy]
    critic: Trained[Critic]
    critic_target: Critic
    temperature: Multiplier


def residuals(
    config: AlgaeDICEConfig,
    policy: GaussianPolicy,
    critic: Critic,
    critic_target: Critic,
    temperature: Float[Array, ""],
    batch: Batch,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "members batch"], Float[Array, " batch"]]:
    """delta of each critic, and log pi(a'|s')."""
    pi = policy(batch.next_observations)
    u = pi.sample_pre_tanh(key)
    log_pi = pi.log_prob_pre_tanh(u)
    next_actions = jnp.tanh(u)
    online = critic(batch.next_observations, next_actions)
    steady = critic_target.minimum(batch.next_observations, next_actions)
    ahead = config.online_share * online + (1.0 - config.online_share) * steady - temperature * log_pi
    target = td_target(batch, config.discount, ahead)
    return target - critic(batch.observations, batch.actions), log_pi


def initial_values(
    policy: GaussianPolicy, critic: Critic, batch: Batch, key: PRNGKeyArray
) -> Float[Array, "members batch"]:
    return critic(batch.initial_observations, policy(batch.initial_observations).sample(key))


def critic_loss(
    critic: Critic, config: AlgaeDICEConfig, state: State, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Metrics]:
    """f(delta) + alpha (1 - gamma) nu(s0, a0), summed over the critics."""
    next_key, initial_key = split(key, 2)
    policy = state.policy.model
    delta, _ = residuals(config, policy, critic, state.critic_target, state.temperature.value, batch, next_key)
    first = initial_values(policy, critic, batch, initial_key)
    value = jnp.abs(delta) ** config.exponent / config.exponent + config.alpha * (1.0 - config.discount) * first
    loss = value.mean(-1).sum()
    return loss, {"critic_loss": loss, "residual": jnp.abs(delta).mean(), "initial_value": first.mean()}


def off_diagonal(policy: GaussianPolicy) -> Float[Array, ""]:
    """Sum of the squared inner products between different columns of each layer's weights."""
    products = [w.T @ w for w in policy.net.weights]
    return sum((((p * (1.0 - jnp.eye(len(p)))) ** 2).sum() for p in products), start=jnp.zeros(()))


def actor_loss(
    policy: GaussianPolicy, config: AlgaeDICEConfig, state: State, critic: Critic, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """-[f'(delta)_+ delta + alpha (1 - gamma) nu(s0, a0)], with f' held fixed; returns log pi(a'|s') as well."""
    next_key, initial_key = split(key, 2)
    delta, log_pi = residuals(config, policy, critic, state.critic_target, state.temperature.value, batch, next_key)
    ratio = jax.lax.stop_gradient(jnp.maximum(delta, 0.0) ** (config.exponent - 1.0))
    first = initial_values(policy, critic, batch, initial_key)
    value = (ratio * delta + config.alpha * (1.0 - config.discount) * first).mean()
    return config.orthogonality * off_diagonal(policy) - value, log_pi


def init(config: AlgaeDICEConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    policy = GaussianPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    return State(Trained.create(policy), Trained.create(critic), critic, Multiplier.create(config.temperature))


def update(
    config: AlgaeDICEConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    critic_key, actor_key = split(key, 2)
    critic, metrics = state.critic.minimise(
        lambda m: critic_loss(m, config, state, batch, critic_key), config.critic_learning_rate
    )

    def improve() -> tuple[Trained[GaussianPolicy], Critic, Multiplier]:
        policy, log_pi = state.policy.minimise(
            lambda m: actor_loss(m, config, state, critic.model, batch, actor_key), config.policy_learning_rate
        )
        shortfall = log_pi.mean() - batch.actions.shape[-1]  # of the entropy, from -|A|
        temperature = state.temperature.update(shortfall, config.temperature_learning_rate)
        return policy, polyak(state.critic_target, critic.model, config.target_rate), temperature

    def keep() -> tuple[Trained[GaussianPolicy], Critic, Multiplier]:
        return state.policy, state.critic_target, state.temperature

    policy, critic_target, temperature = when(step.every(config.policy_delay), improve, keep)
    return State(policy, critic, critic_target, temperature), metrics | {"temperature": temperature.value}


def validate(config: AlgaeDICEConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    return critic_loss(state.critic.model, config, state, batch, key)[1]


ALGAE_DICE = Algorithm(
    name="algae-dice",
    config=AlgaeDICEConfig,
    phases=(Phase("train", init, update, gaussian_actor, validate, period=lambda config: config.policy_delay),),
    source="Nachum et al. 2019, AlgaeDICE: Policy Gradient from Arbitrary Experience",
    grid={ANY_PRESET: {"alpha": [0.001, 0.01, 0.1, 1.0]}},
    presets={
        "quick": {
            "steps": (30_000,),
            "batch_size": 128,
            "hidden": (64, 64),
            "temperature": 0.01,
            "temperature_learning_rate": 0.0,
        },
        "paper": {"standardise_states": False},
    },
)
