"""sbac.visitation_ratio at its edges: what it refuses, what it warns of, what it returns."""

from typing import Any

import numpy as np
import pytest

import sbac
from sbac.errors import UserError
from sbac.ratio import RatioWarning
from sbac.ratio.visitation import reasons_for_doubt

RNG = np.random.default_rng(0)
ROWS = 200
GOOD: dict[str, Any] = {
    "states": RNG.normal(size=(ROWS, 3)),
    "log_ratio": 0.1 * RNG.normal(size=ROWS),
    "next_states": RNG.normal(size=(ROWS, 3)),
    "terminals": RNG.random(ROWS) < 0.1,
    "initial_states": RNG.normal(size=(20, 3)),
    "discount": 0.9,
}
FAST = {"steps": 20, "hidden": [8]}


def ratio_of(**changes: Any) -> Any:
    return sbac.visitation_ratio(**{**GOOD, **FAST, **changes})


def with_nan(name: str) -> np.ndarray:
    values = np.array(GOOD[name], float)
    values.flat[3] = np.nan
    return values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_ratio": np.zeros(ROWS - 1)}, "log_ratio: expected 200 rows, got 199"),
        ({"next_states": np.zeros((ROWS + 1, 3))}, "next_states: expected 200 rows, got 201"),
        ({"terminals": np.zeros(3)}, "terminals: expected 200 rows, got 3"),
        ({"next_states": np.zeros((ROWS, 2))}, "next_states: expected 3 columns, got 2"),
        ({"initial_states": np.zeros((5, 4))}, "initial_states: expected 3 columns, got 4"),
        ({"states": np.zeros(ROWS)}, "states: expected a non-empty array of rows and columns"),
        ({"states": np.zeros((0, 3))}, "states: expected a non-empty array of rows and columns"),
        ({"initial_states": np.zeros((0, 3))}, "initial_states: expected a non-empty array of rows and columns"),
        ({"log_ratio": np.zeros((ROWS, 1))}, "log_ratio: expected one number per row"),
        ({"states": with_nan("states")}, "states: expected finite numbers, found NaN"),
        ({"log_ratio": with_nan("log_ratio")}, "log_ratio: expected finite numbers, found NaN"),
        ({"initial_states": with_nan("initial_states")}, "initial_states: expected finite numbers, found NaN"),
        ({"initial_states": None}, "initial_states: the exact form needs"),
        ({"discount": 1.0}, r"discount: expected a number inside \(0, 1\), got 1.0"),
        ({"form": "theorm"}, "did you mean 'theorem'"),
        ({"estimator": "kernel"}, "unknown estimator 'kernel'"),
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'"),
        ({"states": [["a", "b", "c"]]}, "states: expected numbers"),
        ({"terminals": np.full(ROWS, 2.0)}, "terminals: expected 0 or 1"),
        ({"log_w_clip": float("inf")}, "log_w_clip inf: expected a number above 0"),
        ({"learning_rate": -1.0}, "learning_rate -1.0: expected a number of at least 0"),
        ({"kernel": "cosine", "estimator": "mmd"}, "unknown kernel 'cosine'"),
    ],
)
def test_bad_input_is_one_clear_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        ratio_of(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [-1e4, 1e4])
def test_impossible_actions_give_finite_weights_and_a_warning(value: float) -> None:
    with pytest.warns(RatioWarning, match="mean of beta"):
        ratio = ratio_of(log_ratio=np.full(ROWS, value))
    assert np.isfinite(ratio(GOOD["states"])).all()


@pytest.mark.parametrize(
    ("name", "bad"),
    [("raw_mean", 0.4), ("raw_mean", 2.5), ("ess_w", 0.05), ("ess_beta", 0.01), ("mean_beta", 0.05), ("ess_w", np.nan)],
)
def test_reasons_for_doubt(name: str, bad: float) -> None:
    good = {"raw_mean": 1.0, "ess_w": 1.0, "ess_beta": 0.4, "mean_beta": 1.0, "share_at_clip": 0.0}
    assert reasons_for_doubt(good) == []
    assert len(reasons_for_doubt(good | {name: bad})) == 1


def test_one_action_that_carries_everything_warns() -> None:
    log_ratio = np.full(ROWS, -5.0)
    log_ratio[7] = np.log(ROWS)
    with pytest.warns(RatioWarning, match="effective share of beta 0.005"):
        ratio_of(log_ratio=log_ratio)


@pytest.mark.parametrize(("form", "estimator"), [("exact", "default"), ("theorem", "mmd")])
def test_what_comes_back(form: str, estimator: str) -> None:
    ratio = ratio_of(form=form, estimator=estimator, initial_states=GOOD["initial_states"] if form == "exact" else None)
    w = ratio(GOOD["states"])
    assert isinstance(w, np.ndarray) and w.shape == (ROWS,) and (w > 0).all()
    assert np.isclose(w.mean(), 1.0, atol=1e-4)
    assert np.isclose(ratio(GOOD["states"][0]), w[0], rtol=1e-5)
    assert set(ratio.diagnostics) == {"raw_mean", "ess_w", "ess_beta", "share_at_clip", "mean_beta"}
    with pytest.raises(UserError, match=r"expected \(n, 3\)"):
        ratio(np.zeros((4, 2)))


def test_same_seed_same_bits_and_another_seed_other_ones() -> None:
    first, again, other = (ratio_of(seed=seed)(GOOD["states"]) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_units_of_the_states_do_not_matter() -> None:
    """States are standardised inside; a column that never changes is left as it is."""
    scale, shift = np.array([100.0, 0.01, 1.0]), np.array([5.0, -3.0, 0.0])
    scaled = {name: GOOD[name] * scale + shift for name in ("states", "next_states", "initial_states")}
    assert np.allclose(ratio_of(**scaled)(scaled["states"]), ratio_of()(GOOD["states"]), rtol=1e-3)
    constant = {name: GOOD[name] * [1.0, 1.0, 0.0] for name in scaled}
    assert np.isfinite(ratio_of(**constant)(constant["states"])).all()


def test_next_state_of_a_terminal_row_is_not_read() -> None:
    moved = GOOD["next_states"] + 50.0 * GOOD["terminals"][:, None]
    assert np.allclose(ratio_of(next_states=moved)(GOOD["states"]), ratio_of()(GOOD["states"]), atol=1e-6)
    unknown = np.where(GOOD["terminals"][:, None], np.nan, GOOD["next_states"])
    assert np.allclose(ratio_of(next_states=unknown)(GOOD["states"]), ratio_of()(GOOD["states"]), atol=1e-6)
    unknown[np.flatnonzero(~GOOD["terminals"])[0]] = np.nan  # one that is read
    with pytest.raises(UserError, match="next_states: expected finite numbers"):
        ratio_of(next_states=unknown)
