"""TD3 (Fujimoto et al., 2018): a deterministic policy, twin critics, smoothed targets, delayed policy updates."""

from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import Algorithm, Batch, Metrics, Past, Phase, Step
from sbac.algorithms.evaluation import deterministic_actor
from sbac.algorithms.td3_bc import DelayedConfig, State, critic_target, delayed_update, init
from sbac.config import config, per_policy, shared
from sbac.nn import Critic, DeterministicPolicy


@config
class TD3Config(DelayedConfig):
    start_steps: int = shared(
        25_000, "Environment steps with uniform actions before the first update.", at_least=0, group="training"
    )
    exploration: float = per_policy(0.1, "Deviation of the noise added to the action when acting.", at_least=0)
    standardise_states: bool = False


def policy_loss(policy: DeterministicPolicy, critic: Critic, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """-Q_1(s, pi(s)), of the first critic alone."""
    return -critic(batch.observations, policy(batch.observations))[0].mean(), {}


def update(
    config: TD3Config, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target = critic_target(config, state, batch, key)
    return delayed_update(config, state, batch, step, target, lambda p, q: policy_loss(p, q, batch))


TD3 = Algorithm(
    name="td3",
    config=TD3Config,
    phases=(Phase("train", init, update, deterministic_actor),),
    source="Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods, ICML 2018",
    presets={"quick": {"steps": (100_000,)}, "paper": {}},
    online=True,
)
