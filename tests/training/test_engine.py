"""The engine: a grid equals its runs alone, phases run once per distinct value, batches come from the right rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from sbac.algorithms import REGISTRY, find
from sbac.algorithms.base import Actor, Algorithm, Phase, Spec
from sbac.config import Config, Options, config, fields_of, nested, per_policy
from sbac.training.engine import Program, traced
from sbac.training.grid import members
from sbac.training.table import Scaling, build_table, draw, join

SMALL = {"hidden": [8], "batch_size": 16, "steps": 30}


def make_data(n: int = 400, seed: int = 0) -> sbac.Dataset:
    rng = np.random.default_rng(seed)
    terminals, timeouts = np.zeros(n, bool), np.zeros(n, bool)
    terminals[39::80] = True
    timeouts[79::80] = True
    return sbac.Dataset(
        observations=rng.normal(size=(n, 3)),
        actions=rng.uniform(-1, 1, (n, 2)),
        rewards=rng.normal(size=n),
        terminals=terminals,
        timeouts=timeouts,
    )


def program(name: str, seeds, **options) -> Program:
    data = make_data()
    method = find(name)
    small = {field: value for field, value in SMALL.items() if field in fields_of(method.config)}
    runs = members(method, "quick", seeds, small | options)
    scaling = Scaling.of(data, runs[0].config)
    spec = Spec(3, 2, jnp.asarray(scaling.states(data.observations[:50]))[None])
    return Program(method, runs, build_table(data, scaling), None, spec)


def train_all(prog: Program) -> dict:
    finals: dict = {}
    for i, phase in enumerate(prog.algorithm.phases):
        state = prog.init(i, finals)
        finals[phase.name], _ = prog.advance(i, prog.inputs(i, finals), state, 0, 30)
    return finals


def test_a_run_of_a_grid_equals_the_same_run_alone() -> None:
    grid = train_all(program("sbac", 3, alpha=[0.5, 2.0], ratio_hidden=[8], policy_learning_rate=[1e-3, 1e-4]))
    alone = train_all(program("sbac", [2], alpha=2.0, ratio_hidden=[8], policy_learning_rate=1e-4))
    # order: alpha outermost, then policy_learning_rate, seeds innermost; estimate holds one training per seed
    for name, row in (("estimate", 2), ("improve", 11)):
        for ours, theirs in zip(jax.tree.leaves(grid[name]), jax.tree.leaves(alone[name]), strict=True):
            np.testing.assert_allclose(ours[row], theirs[0], rtol=2e-3, atol=2e-5)


def test_phases_run_once_per_distinct_value_of_what_they_read() -> None:
    prog = program("sbac", 3, alpha=[0.5, 2.0], ratio_hidden=[8])
    assert [len(prog.members(i)) for i in range(2)] == [3, 6]
    # the discount is read by phase estimate, so it splits it
    prog = program("sbac", 3, alpha=[0.5, 2.0], discount=[0.9, 0.99], ratio_hidden=[8])
    assert [len(prog.members(i)) for i in range(2)] == [6, 12]
    prog = program("sbac", 3, weighting="q", ratio_learning_rate=[1e-3, 1e-4], ratio_hidden=[8])
    assert [len(prog.members(phase)) for phase in (0, 1)] == [3, 6]
    assert "ratio_learning_rate" not in prog.distinguishing(0) and "ratio_form" in prog.distinguishing(0)
    assert "ratio_learning_rate" in prog.distinguishing(1)


@config
class Inner(Options):
    size: float = per_policy(1.0, "How large.")


@config
class Outer(Config):
    steps: tuple[int, ...] = (1, 1, 1)
    inner: Inner = nested(Inner(), prefix="inner_", group="the method")
    rate: float = per_policy(0.1, "How fast.")


def test_what_a_phase_reads_is_found_in_groups_in_metrics_and_in_the_policy() -> None:
    """What is put in the place of a field, and what is never used, counts as not read."""

    def init(config: Any, spec: Any, past: Any, key: Any) -> Any:
        return {"x": jnp.zeros(())}

    def update(config: Any, past: Any, state: Any, batch: Any, key: Any, step: Any) -> Any:
        return {"x": state["x"] + config.inner.replace(size=1.0).size}, {}

    def metric(config: Any, past: Any, state: Any, batch: Any, key: Any, step: Any) -> Any:
        return state, {"size": 2 * config.inner.size}

    def actor(config: Any, past: Any, state: Any) -> Any:
        return Actor("deterministic", {}, {"x": state["x"]})

    def discounting(config: Any, past: Any, state: Any) -> Any:
        return Actor("deterministic", {}, {"x": config.discount})

    phases = Phase("a", init, update, actor), Phase("b", init, metric, actor), Phase("c", init, update, discounting)
    method, data = Algorithm("probe", Outer, phases, "a test", {"quick": {}}), make_data()
    (run,) = members(method, "quick", 1, {})
    scaling = Scaling.of(data, run.config)
    spec = Spec(3, 2, jnp.zeros((1, 5, 3)))
    reads, work = traced(method, run, build_table(data, scaling), spec)
    assert reads == [set(), {"inner_size"}, {"inner_size", "discount"}] and work == [0.0, 0.0, 0.0]


def test_a_chunk_can_be_cut_anywhere() -> None:
    prog = program("sbac-no-w", 2)
    whole, _ = prog.advance(0, prog.inputs(0, {}), prog.init(0, {}), 0, 30)
    state, _ = prog.advance(0, prog.inputs(0, {}), prog.init(0, {}), 0, 11)
    cut, _ = prog.advance(0, prog.inputs(0, {}), state, 11, 30)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [name for name in REGISTRY if not find(name).online])
def test_no_program_is_compiled_for_the_first_state_alone(name: str) -> None:
    """A number of a weak type in it would make the second chunk a program of its own."""
    prog = program(name, 2)
    finals: dict = {}
    for index, phase in enumerate(prog.algorithm.phases):
        finals[phase.name] = prog.shape(index, finals)
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(finals[phase.name]))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("td3-bc", {}, marks=pytest.mark.slow),
        ("sbac", {"weighting": "q", "ratio_hidden": [8], "ratio_every": 3}),
    ],
)
def test_the_steps_are_the_same_in_blocks_of_any_length(name: str, fields: dict) -> None:
    """A block of whole periods writes them out, and knows beforehand which step updates what; one by one it asks."""
    prog = program(name, 2, **fields)
    last, period = len(prog.algorithm.phases) - 1, fields.get("ratio_every", 2)
    finals = {phase.name: prog.init(i, {}) for i, phase in enumerate(prog.algorithm.phases[:-1])}
    inputs = prog.inputs(last, finals)
    ends = [prog.advance(last, inputs, prog.init(last, finals), 0, 30, block)[0] for block in (1, 5 * period)]
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert prog.block(last, 30_000) % period == 0


def test_of_several_datasets_each_run_draws_from_its_own() -> None:
    logs = [make_data(400, seed=0), make_data(240, seed=1), make_data(800, seed=2)]
    config = members(find("bc"), "quick", 1, SMALL | {"standardise_states": False})[0].config
    tables = [build_table(log, Scaling.of(log, config)) for log in logs]
    together = join(tables)
    for i, (log, alone) in enumerate(zip(logs, tables, strict=True)):
        for needs in ("row", "next_action"):
            batch = draw(together, together.place(i), jax.random.key(3), 5_000, needs, 2)
            expected = draw(alone, alone.place(0), jax.random.key(3), 5_000, needs, 2)
            for ours, theirs in zip(jax.tree.leaves(batch), jax.tree.leaves(expected), strict=True):
                np.testing.assert_array_equal(ours, theirs)
        drawn = {tuple(row) for row in np.asarray(batch.rows.observations).tolist()}
        assert drawn <= {tuple(row) for row in log.observations.tolist()} and len(drawn) > 0.9 * len(log)


def test_draws_are_uniform() -> None:
    data = make_data()
    config = members(find("bc"), "quick", 1, SMALL | {"standardise_states": False})[0].config
    table = build_table(data, Scaling.of(data, config))
    rows = np.asarray(draw(table, table.place(0), jax.random.key(1), 200_000, "row", 2).rows.observations[:, 0])
    counts = np.array([(rows == x).sum() for x in data.observations[:, 0]])
    expected = 200_000 / 400
    assert ((counts - expected) ** 2 / expected).sum() < 400 + 5 * np.sqrt(800)  # chi-square, five sigma


def test_scaling_is_baked_into_the_policy() -> None:
    data = make_data()
    raw = sbac.Dataset(
        observations=data.observations * 100 + 7,
        actions=data.actions * 3,
        rewards=data.rewards,
        terminals=data.terminals,
        timeouts=data.timeouts,
        action_low=[-3, -3],
        action_high=[3, 3],
    )
    plain = sbac.train(data, "bc", steps=50, hidden=[8])
    scaled = sbac.train(raw, "bc", steps=50, hidden=[8])
    probe = data.observations[:10]
    np.testing.assert_allclose(scaled.policies[0](probe * 100 + 7), 3 * plain.policies[0](probe), atol=0.05)


def test_warm_start_continues_from_the_networks_of_another_run(tmp_path) -> None:
    data = make_data()
    first = sbac.train(data, "bc", steps=50, hidden=[8], out=tmp_path / "a")
    same = sbac.train(data, "bc", steps=0, hidden=[8], out=tmp_path / "b", warm_start=tmp_path / "a")
    probe = data.observations[:10]
    np.testing.assert_array_equal(first.policies[0](probe), same.policies[0](probe))
    with pytest.raises(sbac.UserError, match="expected"):
        sbac.train(data, "bc", steps=0, hidden=[4], out=tmp_path / "c", warm_start=tmp_path / "a")


def test_the_precision_of_a_run_reaches_its_networks() -> None:
    losses = {}
    for name in ("float32", "bfloat16"):
        prog = program("bc", 2, precision=name)
        _, metrics = prog.advance(0, prog.inputs(0, {}), prog.init(0, {}), 0, 30)
        losses[name] = np.asarray(next(iter(metrics.values())))
    assert not np.array_equal(losses["float32"], losses["bfloat16"])
    np.testing.assert_allclose(losses["float32"], losses["bfloat16"], rtol=0.02, atol=0.02)
