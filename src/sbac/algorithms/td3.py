"""TD3 (Fujimoto et al., 2018): a deterministic policy, twin critics, smoothed targets, delayed policy updates."""

from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import Actor, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split, when
from sbac.algorithms.evaluation import td_loss, td_target
from sbac.algorithms.td3_bc import State, smoothed
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Critic, DeterministicPolicy, Trained, polyak


@config
class TD3Config(Config):
    steps: tuple[int, ...] = (1_000_000,)
    hidden: tuple[int, ...] = layers((256, 256))
    learning_rate: float = rate(3e-4, "Learning rate of the policy and the critics.")
    target_rate: float = polyak_rate(0.005)
    target_noise: float = per_policy(0.2, "Deviation of the noise on the target policy's actions.", at_least=0)
    target_noise_clip: float = per_policy(0.5, "That noise stays inside +- this.", at_least=0)
    policy_delay: int = shared(2, "Steps between updates of the policy.", at_least=1)
    start_steps: int = shared(
        25_000, "Environment steps with uniform actions before the first update.", at_least=0, group="training"
    )
    exploration: float = per_policy(0.1, "Deviation of the noise added to the action when acting.", at_least=0)
    standardise_states: bool = False


def critic_target(config: TD3Config, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """r + gamma min Q'(s', a'), a' from the target policy with clipped noise."""
    next_actions = state.policy_target(batch.next_observations)
    next_actions = smoothed(next_actions, config.target_noise, config.target_noise_clip, key)
    next_value = state.critic_target.minimum(batch.next_observations, next_actions)
    return td_target(batch, config.discount, next_value)


def policy_loss(policy: DeterministicPolicy, critic: Critic, batch: Batch) -> tuple[Float[Array, ""], None]:
    """-Q_1(s, pi(s)), of the first critic alone."""
    return -critic(batch.observations, policy(batch.observations))[0].mean(), None


def init(config: TD3Config, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    policy = DeterministicPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    return State(Trained.create(policy), Trained.create(critic), policy, critic)


def update(
    config: TD3Config, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target = critic_target(config, state, batch, key)
    critic, metrics = state.critic.minimise(lambda q: td_loss(q, batch, target), config.learning_rate)

    def improve() -> State:
        policy, _ = state.policy.minimise(lambda p: policy_loss(p, critic.model, batch), config.learning_rate)
        return State(
            policy,
            critic,
            polyak(state.policy_target, policy.model, config.target_rate),
            polyak(state.critic_target, critic.model, config.target_rate),
        )

    def wait() -> State:
        return State(state.policy, critic, state.policy_target, state.critic_target)

    new = when(step.every(config.policy_delay, config.policy_delay - 1), improve, wait)
    return new, {"q": metrics["q"]}


def actor(config: TD3Config, past: Past, state: State) -> Actor:
    return Actor("deterministic", {"policy": state.policy.model.net})


TD3 = Algorithm(
    name="td3",
    config=TD3Config,
    phases=(Phase("train", init, update, actor),),
    source="Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods, ICML 2018",
    presets={"quick": {"steps": (100_000,)}, "paper": {}},
    online=True,
)
