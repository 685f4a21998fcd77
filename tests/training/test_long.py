"""A training that takes long says so before it is compiled."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from sbac.cli import main
from sbac.training import cost


def test_multiplications_are_those_of_the_matrix_products_and_of_every_turn_of_a_loop() -> None:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        once = jnp.einsum("bij,jk->bik", x, y)  # 2 x 3 x 4 by 4 x 5
        many, _ = jax.lax.scan(lambda z, _: (z @ jnp.ones((5, 5)), None), once, None, length=10)
        return jax.jit(jnp.tanh)(many) * 2.0

    traced = jax.make_jaxpr(function)(jnp.ones((2, 3, 4)), jnp.ones((4, 5)))
    assert cost.multiplications(traced.jaxpr) == 2 * 3 * 4 * 5 + 10 * (2 * 3 * 5 * 5)


def test_what_cannot_take_long_needs_no_look_at_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "speed", None)
    assert cost.seconds(cost.SLOWEST * 60) == 60
    monkeypatch.setattr(cost, "speed", lambda: 1e10)
    assert cost.seconds(1e15) == 1e15 / (cost.SHARE * 1e10)


@pytest.mark.parametrize("speed", [1.0, 1e12])
def test_a_long_training_names_the_command_that_takes_15_minutes(
    speed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "SLOWEST", 1.0)
    monkeypatch.setattr(cost, "speed", lambda: speed)
    words = ["--algorithm", "bc", "--steps", "10", "--hidden", "8", "--batch-size", "8", "--no-evaluate"]
    assert main(["train", "hopper-demo", *words, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    said = "hours on this machine; sbac learn hopper-demo --minutes 15" in printed.err
    assert said == (speed < 1e6) and printed.out.splitlines()[-1] == f"next: sbac select {tmp_path / 'run'}"
