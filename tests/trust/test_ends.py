"""Ends in the learned model against a world that is simulated: a point that drifts, and falls where s' > 1. And what
is left out because it does not know the log itself."""

import dataclasses
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from sbac import Dataset
from sbac.trust.doubts import LEFT_OUT, believed
from sbac.trust.dynamics import Model, learn
from sbac.trust.estimates import conclude
from sbac.trust.evidence import Effort, Facts, Question, explained, summary
from sbac.trust.knowing import know
from sbac.trust.log import JudgedLog, read_log
from sbac.trust.model import MOST_GROUPS, ROLLOUTS, evidence, roll
from sbac.trust.walking import episode_returns, follow, world_of

EFFORT = Effort(2, 2, (16, 16), 64, (50, 50), 2e-3, 0.1, (32, 32), 2_000)
QUIET = dataclasses.replace(EFFORT, model_steps=4_000, model_noise=False)
LENGTH = 30


def played(act, episodes: int, seed: int) -> dict[str, Any]:
    """Episodes of at most `LENGTH` steps as columns; every step earns 1 - s^2 / 2."""
    rng = np.random.default_rng(seed)
    s, steps = rng.normal(0.0, 0.3, episodes), []
    for _ in range(LENGTH):
        a = np.clip(act(s, rng), -1, 1)
        after = 0.9 * s + 0.3 * a + 0.15 * rng.standard_normal(episodes)
        steps.append((s, a, after))
        s = after
    s, a, after = (np.stack(column, 1) for column in zip(*steps, strict=True))
    ends, last = after > 1.0, np.arange(LENGTH) == LENGTH - 1
    kept = np.cumsum(ends, axis=1) - ends == 0
    moved = {"observations": s, "actions": a, "next_observations": after}
    columns = {name: column[kept][:, None] for name, column in moved.items()}
    return columns | {"rewards": 1 - 0.5 * s[kept] ** 2, "terminals": ends[kept], "timeouts": (~ends & last)[kept]}


@cache
def truth(law) -> tuple[float, float]:
    """Mean length and mean return."""
    columns = played(lambda s, _: law(s), 4_000, 1)
    return len(columns["rewards"]) / 4_000, columns["rewards"].sum() / 4_000


def rarely(law) -> float:
    """The share of the steps in a place where the log rarely was."""
    return float((played(lambda s, _: law(s), 4_000, 1)["observations"] < RARE).mean())


def logged(beside: bool) -> JudgedLog:
    """A noisy log of the point, with or without the states that it fell to; watched: three times the reward, 1, and
    what is rare."""
    columns = played(lambda s, rng: rng.normal(0.2, 0.35, len(s)), 300, 0)
    after = columns.pop("next_observations")
    watched = {"thrice": 3.0 * columns["rewards"], "one": np.ones(len(after))}
    behind = after[columns["terminals"]] if beside else None
    data = sbac.Dataset(**columns, terminal_observations=behind, extras=watched)
    return read_log(data, 0.9, ["thrice", "one", f"o0 < {RARE}"])


RARE = -0.3
LAWS = {"stays": lambda s: -0.5 * s, "leans": lambda s: 0.25 + 0.0 * s, "falls": lambda s: 0.6 + 0.0 * s}


@pytest.fixture(scope="module", params=[True, False], ids=["with terminal states", "without"])
def fallen(request) -> tuple[JudgedLog, Model]:
    log = logged(request.param)
    model = learn(log, EFFORT, 0)
    assert model.exact_ends == request.param
    return log, model


def rolled(log: JudgedLog, model: Model):
    return roll(Question(log, list(LAWS.values()), EFFORT), model, np.inf)


def test_falls_are_seen_with_and_without_the_states_behind_them(fallen) -> None:
    found = rolled(*fallen)
    for law, length, earned, early in zip(LAWS.values(), found.lengths, found.episodes, found.early, strict=True):
        true_length, true_return = truth(law)
        assert length.mean() == pytest.approx(true_length, rel=0.15)
        assert earned.mean() == pytest.approx(true_return, rel=0.15)
        assert early.min() >= 0.0 and early.max() <= 1.0
    assert found.early.mean(1)[0] < 0.3 < 0.95 < found.early.mean(1)[2]
    np.testing.assert_allclose(found.watched[..., 0], 3.0 * found.episodes, rtol=0.05)
    np.testing.assert_allclose(found.watched[..., 1], found.lengths, rtol=1e-4)


def test_the_rate_of_what_is_rare_is_a_share(fallen) -> None:
    """Networks that are fitted to zeros and ones say a little less than 0 where a rule never holds."""
    log = fallen[0]
    model = learn(log, dataclasses.replace(EFFORT, model_steps=6_000), 0)
    found = rolled(log, model)
    rates = found.watched[..., 2] / found.lengths
    assert rates.min() >= 0.0
    for law, rate in zip(LAWS.values(), rates, strict=True):
        assert rate.mean() == pytest.approx(rarely(law), abs=0.025)
    freely = dataclasses.replace(model.scales, earned_low=-jnp.inf, earned_high=jnp.inf)
    pair = log.transitions.states, log.transitions.actions
    assert (
        dataclasses.replace(model, scales=freely)(*pair).earned[..., 3].min() < 0.0 <= model(*pair).earned[..., 3].min()
    )


def test_how_far_a_policy_strays_is_where_its_rollouts_are_after_half_an_episode(fallen) -> None:
    """As rollouts of half the length end, by brute force; one that goes where the log never was goes farthest."""
    log, model = fallen
    question = Question(log, [*LAWS.values(), lambda s: -1.0 + 0.0 * s], EFFORT)
    found = roll(question, model, np.inf)
    known = np.asarray(log.transitions.states)[:, 0]
    expected: list[np.ndarray] = []
    groups = log.episodes // ROLLOUTS
    firsts = np.linspace(0, log.episodes - 1, groups * ROLLOUTS).astype(int)
    for number in range(found.asked // ROLLOUTS):
        chosen = firsts[number::groups]
        starts = np.tile(np.asarray(log.starts)[chosen], (4, model.count, 1))
        member = np.repeat(np.arange(model.count), len(chosen))
        world = world_of(question, model, member, np.full(len(member), LENGTH), np.inf, number)
        walk = follow(world, question.actors, starts, LENGTH // 2, lambda _: None)
        apart = np.abs(np.asarray(walk.states) - known).min(-1)
        expected.append(np.average(apart, 1, np.asarray(walk.survived)))
    np.testing.assert_allclose(found.strays, np.mean(expected, 0), rtol=1e-3, atol=2e-3)
    assert found.asked > ROLLOUTS and found.strays[3] > 1.0 > 20 * found.strays[:3].max()


def test_a_rule_of_the_users_ends_episodes_in_place_of_what_was_learned(fallen) -> None:
    """The rule speaks of observations in the environment's units, and of the state that is drawn. Where the states
    behind ends are missing, what was learned of ends counts beside it: together they end a little too often."""
    log, model = fallen
    ruled = rolled(log, dataclasses.replace(model, ends_by=lambda observations: observations[..., 0] > 1.0))
    for law, length in zip(LAWS.values(), ruled.lengths, strict=True):
        assert length.mean() == pytest.approx(truth(law)[0], rel=0.15 if model.ends_seen else 0.2)


def test_the_model_knows_a_log_that_it_can_know(fallen) -> None:
    log, model = fallen
    facts = known(log, model)
    assert not LEFT_OUT["model"].holds(facts)
    assert facts["model_log_length"] == pytest.approx(facts["log_length"], rel=0.15)


def test_a_lasting_departure_costs_what_it_costs_in_the_world() -> None:
    """The state is what the action adds up to. A clone that is off by a constant leaves the best state for good, and
    the reward falls with the square; where the reward knows nothing of the state it costs nothing."""
    rng, steps, episodes = np.random.default_rng(0), 20, 300
    states, actions = np.zeros((episodes, steps)), np.zeros((episodes, steps))
    state = 0.3 * rng.standard_normal(episodes)
    for step in range(steps):
        states[:, step] = state
        actions[:, step] = np.clip(-0.3 * state + 0.2 * rng.standard_normal(episodes), -0.9, 0.9)
        state = state + actions[:, step]
    costs: dict[str, Facts] = {}
    for name, rewards in (("at stake", -(states**2)), ("nothing", 1.0 + 0.0 * states)):
        data = sbac.Dataset(
            observations=states.reshape(-1, 1),
            actions=actions.reshape(-1, 1),
            rewards=rewards.ravel(),
            terminals=np.zeros(states.size, bool),
            timeouts=np.arange(1, states.size + 1) % steps == 0,
        )
        log = read_log(data, 0.9)
        costs[name] = known(log, learn(log, QUIET, 0), QUIET)
    assert abs(costs["nothing"]["model_departure"]) < 0.1
    # Off by 0.2 z for good, with -0.3 s against it: s comes to 0.2 z / 0.3, whose square is 0.44 on average.
    assert 0.3 * steps * 0.44 < costs["at stake"]["model_departure"] < 1.1 * steps * 0.44
    assert 0.0 < costs["at stake"]["model_departure_discounted"] < costs["at stake"]["model_departure"]


def chancy(noise: float, steps: int, count: int, short: bool = True) -> Dataset:
    """Every step earns a twentieth of the state, which stays, and chance. `short`: episodes end by themselves."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.standard_normal(count), steps)
    last = np.arange(1, states.size + 1) % steps == 0
    return sbac.Dataset(
        observations=states[:, None],
        actions=rng.uniform(-1, 1, (states.size, 1)),
        rewards=0.05 * states + noise * rng.standard_normal(states.size),
        terminals=last & short,
        timeouts=last & (not short),
    )


@pytest.mark.parametrize(("noise", "steps"), [(0.0, 4), (1.0, 4)])
def test_what_chance_adds_to_rewards_is_told_from_what_states_explain(noise: float, steps: int) -> None:
    log = read_log(chancy(noise, steps, 4_000), 0.9)
    facts = known(log, learn(log, QUIET, 0), QUIET)
    squares = 0.81 ** np.arange(steps)
    assert facts["model_luck"] == pytest.approx(noise * np.sqrt(steps), rel=0.05, abs=0.02)
    assert facts["model_luck_discounted"] == pytest.approx(noise * np.sqrt(squares.sum()), rel=0.05, abs=0.02)


def test_of_one_step_all_is_luck_that_the_action_does_not_explain() -> None:
    """Twice the state, the action where the state is positive, and chance. The actions have a variance of 0.09."""
    rng = np.random.default_rng(0)
    states, actions = rng.standard_normal((2, 4_000, 1)) * [[[1.0]], [[0.3]]]
    actions = np.clip(actions, -1, 1)
    earned = (2 * states + actions * (states > 0))[:, 0] + 0.2 * rng.standard_normal(4_000)
    data = sbac.Dataset(observations=states, actions=actions, rewards=earned, terminals=np.ones(4_000, bool))
    log = read_log(data, 0.9)
    facts = known(log, learn(log, QUIET, 0), QUIET)
    left = Facts(facts | {"episode_deviation": float(earned.std()), "return_deviation": float(earned.std())})
    assert explained(left, "episode_deviation") == pytest.approx(np.sqrt(0.045), rel=0.15)
    assert explained(left, "return_deviation") == pytest.approx(np.sqrt(0.045), rel=0.15)


def test_of_short_episodes_many_are_rolled_out_so_that_chance_in_the_first_states_does_not_count() -> None:
    """One step, and the state is all that it earns: no policy earns more than the log."""
    log = read_log(chancy(1.0, 1, 4_000), 0.9)
    said = evidence(Question(log, [lambda s: 0.5 + 0.0 * s], QUIET))[0]
    logged, spread = float(log.returns.mean()), said.diagnostics["model_baseline_spread"]
    assert said.draws["episode"].mean() == pytest.approx(logged, abs=0.05)
    assert spread == pytest.approx(1.0 / np.sqrt(ROLLOUTS * MOST_GROUPS), rel=0.05)
    assert abs(said.draws["gain"].mean()) < 3 * spread


@pytest.mark.parametrize(
    ("steps", "count", "short", "groups"), [(600, 60, True, 1), (50, 400, False, 2), (5, 50, True, 2)]
)
def test_all_rollouts_take_no_more_steps_than_one_long_episode(
    steps: int, count: int, short: bool, groups: int
) -> None:
    """Behind a time limit a rollout goes on for as long as anything counts: 459 steps."""
    log = read_log(chancy(1.0, steps, count, short), 0.99)
    question, model = Question(log, [lambda s: 0.0 * s], EFFORT), learn(log, EFFORT, 0)
    found = roll(question, model, np.inf)
    assert found.asked == groups * ROLLOUTS and found.steps <= 1_050
    assert steps < 600 or roll(question, model, 0.0).asked == ROLLOUTS  # cut at once, they are no more


def test_a_log_with_a_memory_that_no_column_shows_is_not_known() -> None:
    """A clock ends every episode after 20 steps. By what is seen, each step may be the last one."""
    rng = np.random.default_rng(0)
    ends = np.arange(6_000) % 20 == 19
    rewards = 1.0 + 0.1 * rng.standard_normal(len(ends))
    noise: dict[str, Any] = {
        "observations": rng.normal(size=(len(ends), 1)),
        "actions": rng.uniform(-1, 1, (len(ends), 1)),
    }
    log = read_log(sbac.Dataset(**noise, rewards=rewards, terminals=ends), 0.9)
    facts = known(log, learn(log, EFFORT, 0))
    assert facts["model_log_length"] == pytest.approx((1 - 0.95**20) / 0.05, rel=0.1)
    assert LEFT_OUT["model"].holds(facts)
    assert "the log's own episodes earn -" in believed(facts)[1][0]


def known(log: JudgedLog, model: Model, effort: Effort = EFFORT) -> Facts:
    cloning = dataclasses.replace(effort, steps=(750, 750))
    return Facts(know(Question(log, [], cloning), model).facts(), episode_deviation=float(episode_returns(log).std()))


def test_what_does_not_know_the_log_is_left_out_of_the_answer() -> None:
    model = {"model_missed": 15.0, "model_missed_spread": 1.0, "episode_deviation": 2.0, "model_share": 1.0}
    said = summary("fitted_gain", np.array([1.0, 1.1, 0.9])) | summary("model_gain", np.array([3.0, 3.1, 2.9]))
    fitted = {"missed": 0.0, "return_deviation": 1.0, "log": 4.0, "distance": 0.5, "episodes": 100}
    without_model = conclude(Facts(said | fitted | model))
    assert without_model.gain == pytest.approx(1.0) and without_model.has_interval
    assert "the learned model is left out" in without_model.left_out[0]
    without_fitted = conclude(Facts(said | fitted | model, model_missed=0.1, missed=0.8))
    assert without_fitted.gain == pytest.approx(3.0) and without_fitted.has_interval
    assert "misses the log's own mean return" in without_fitted.left_out[0]
    nobody = conclude(Facts(said | fitted | model, missed=0.8))
    assert not nobody.has_interval and "no estimator knows the log" in nobody.warnings[-1]
    assert nobody.gain == pytest.approx(3.0)  # the model's, shown and not promised
