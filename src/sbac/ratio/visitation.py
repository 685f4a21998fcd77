"""The visitation ratio from plain arrays: no policy network, no engine."""

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, PRNGKeyArray

from sbac.config import changed, fields_of
from sbac.errors import UserError, inside_unit, name_of, not_negative, positive, unknown
from sbac.nn import half_cosine
from sbac.nn.typed import in_chunks, jit, scan, take
from sbac.ratio.base import FitConfig, Ratio, RatioBatch, RatioConfig, State
from sbac.ratio.estimators import init, method, summary, update
from sbac.ratio.kernels import SAMPLE

ROWS_AT_ONCE = 8_192
TARGET_RATE = 0.05
# Beyond these the estimate is unreliable.
LEAST_ESS_BETA = 0.02
LEAST_ESS_W = 0.1
MEAN_W = (0.5, 2.0)
MEAN_BETA = (0.1, 10.0)


class RatioWarning(UserWarning):
    """The diagnostics call the estimated ratio unreliable."""


@dataclass(frozen=True)
class VisitationRatio:
    """w as a function of states in their own units, with mean 1 over the data (the printed form: as it is).

    `diagnostics`: raw_mean, E_D[w] before it was normalised (1 in truth); ess_w and ess_beta, the shares of the data
    that carry the weight of w and of the action ratio as given, (E x)^2 / E x^2; share_at_clip, of log w; mean_beta,
    the mean of the action ratio as given (1 in truth).
    """

    diagnostics: dict[str, float]
    config: FitConfig
    model: Ratio
    centre: np.ndarray
    scale: np.ndarray
    log_mean: float

    def __call__(self, states: npt.ArrayLike) -> np.ndarray | np.float32 | np.float64:
        """w of states (n, obs), or of one state (obs,): an array, or a number."""
        x = numbers("states", states)
        if x.ndim not in (1, 2) or x.shape[-1] != len(self.centre):
            raise UserError(f"states: expected (n, {len(self.centre)}) or ({len(self.centre)},), got {x.shape}")
        standardised = np.atleast_2d((checked("states", x) - self.centre) / self.scale)
        w = np.exp(np.asarray(log_w_of_rows(self.config, self.model, jnp.asarray(standardised))) - self.log_mean)
        return w if x.ndim == 2 else w[0]


def visitation_ratio(
    states: npt.ArrayLike,
    log_ratio: npt.ArrayLike,
    next_states: npt.ArrayLike,
    terminals: npt.ArrayLike,
    initial_states: npt.ArrayLike | None,
    discount: float,
    form: str = "exact",
    seed: int = 0,
    *,
    estimator: str = "default",
    steps: int = 5_000,
    batch_size: int = 256,
    **options: Any,
) -> VisitationRatio:
    """Estimates w(s) = d^pi(s) / d^D(s) from transitions of any behaviour.

    `log_ratio` is log pi(a|s) - log mu(a|s) at each row's action. Leave out rows that a time limit ended: their next
    state is not one that the policy went on from. A terminal row's next state is not read. `form` is the equation:
    exact (needs `initial_states`), theorem or printed; `estimator` what solves it: classifier (the default) or mmd.
    `options` are the other fields of `FitConfig`, such as hidden, learning_rate, log_w_clip.

    Warns (`RatioWarning`) when the effective share of beta is below 0.02 or that of w below 0.1, when the mean of w
    before normalisation is outside [0.5, 2], or the mean of beta outside [0.1, 10].
    """
    config = make_config(discount, form, estimator, steps, batch_size, options)
    not_negative("seed", seed)
    s = rows_of("states", states)
    count, size = s.shape
    centre, scale = s.mean(0), s.std(0)
    scale = np.where(scale > 1e-6, scale, 1.0)

    def standardised(x: np.ndarray) -> Array:
        return jnp.asarray((x - centre) / scale)

    ends = flags_of("terminals", terminals, count)
    successors = own_at_ends("next_states", next_states, s, ends)
    data = RatioBatch(
        states=standardised(s),
        log_ratio=jnp.asarray(column_of("log_ratio", log_ratio, count)),
        next_states=standardised(rows_of("next_states", successors, rows=count, columns=size)),
        terminals=jnp.asarray(ends),
    )
    if config.form == "exact":
        if initial_states is None:
            raise UserError("initial_states: the exact form needs the states that episodes start from; none were given")
        initial = rows_of("initial_states", initial_states, columns=size)
        data = data._replace(initial_states=standardised(initial))
    model = fit(config, data, jax.random.key(seed))
    logs = log_w_of_rows(config, model, data.states)
    found = {name: float(value) for name, value in summary(config, logs, data.log_ratio).items()}
    diagnostics = {
        "raw_mean": found["ratio_mean"],
        "ess_w": found["ratio_ess"],
        "ess_beta": found["beta_ess"],
        "share_at_clip": found["ratio_at_clip"],
        "mean_beta": found["beta_mean"],
    }
    if doubts := reasons_for_doubt(diagnostics):
        warnings.warn(f"the estimated visitation ratio is unreliable: {'; '.join(doubts)}", RatioWarning, stacklevel=2)
    log_mean = 0.0 if config.form == "printed" else float(np.log(diagnostics["raw_mean"]))
    return VisitationRatio(diagnostics, config, model, centre, scale, log_mean)


def reasons_for_doubt(diagnostics: dict[str, float]) -> list[str]:
    """One phrase for each threshold that is crossed."""
    bounds = {
        "ess_beta": ("effective share of beta", LEAST_ESS_BETA, 1.0),
        "mean_beta": ("mean of beta", *MEAN_BETA),
        "ess_w": ("effective share of w", LEAST_ESS_W, 1.0),
        "raw_mean": ("mean of w before normalisation", *MEAN_W),
    }
    return [
        f"{words} {diagnostics[name]:.3g}, outside [{low:g}, {high:g}]"
        for name, (words, low, high) in bounds.items()
        if not low <= diagnostics[name] <= high + 1e-3
    ]


@jit
def fit(config: FitConfig, data: RatioBatch, key: PRNGKeyArray) -> Ratio:
    """Trains on batches drawn from the data; pure, so that it maps over keys and configs."""
    init_key, sample_key, batch_key = jax.random.split(key, 3)
    sample = data.states[jax.random.randint(sample_key, (SAMPLE,), 0, len(data.states))]

    def step(state: State, now: tuple[Array, PRNGKeyArray]) -> State:
        number, key = now
        at_rate = config
        if config.decay:
            at_rate = config.replace(learning_rate=config.learning_rate * half_cosine(number, config.steps))
        return update(at_rate, state, draw(config, data, key), TARGET_RATE)[0]

    start = init(config, init_key, data.states.shape[1], sample)
    steps = jnp.arange(config.steps), jax.random.split(batch_key, config.steps)
    return scan(step, start, steps).target


def draw(config: FitConfig, data: RatioBatch, key: PRNGKeyArray) -> RatioBatch:
    """A batch with replacement; restarts are drawn apart from the rows, except where they are the rows."""
    row_key, start_key = jax.random.split(key)
    rows = jax.random.randint(row_key, (config.batch_size,), 0, len(data.states))
    starts = rows
    if data.initial_states is not None:
        starts = jax.random.randint(start_key, (config.batch_size,), 0, len(data.initial_states))
    batch = take(data._replace(initial_states=None), rows)
    return batch._replace(initial_states=take(data.initial_states, starts))


@jit
def log_w_of_rows(config: RatioConfig, model: Ratio, states: Array) -> Array:
    return in_chunks(lambda s: model.log_w(config, s), states, ROWS_AT_ONCE)


def make_config(
    discount: float, form: str, estimator: str, steps: int, batch_size: int, options: dict[str, Any]
) -> FitConfig:
    """The config of a fit: small networks and a log-w clip of 5, since accuracy comes first here."""
    known = fields_of(FitConfig)
    for name in options:
        if name not in known:
            raise unknown("option of visitation_ratio", name, known)
    inside_unit("discount", discount)
    for what, value in (("form", form), ("estimator", estimator)):
        name_of(what, value)
    defaults: dict[str, Any] = {"hidden": (64, 64), "learning_rate": 5e-4}
    if form != "printed":
        defaults["log_w_clip"] = 5.0
    named = {"discount": discount, "form": form, "estimator": estimator, "steps": steps, "batch_size": batch_size}
    chosen = {**defaults, **options, **named}
    config = changed(FitConfig(), {name: known[name].convert(value) for name, value in chosen.items()})
    for what, value in (("steps", steps), ("batch_size", batch_size)):
        positive(what, value)
    method(config)  # an estimator that does not fit the form is refused before anything is computed
    return config


def own_at_ends(name: str, values: npt.ArrayLike, own: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """What comes next, and the row's own in its place where nothing does: logs hold anything there, NaN too."""
    x = numbers(name, values)
    return np.where(ends[:, None] == 1, own, x) if x.shape == own.shape else x


def rows_of(name: str, values: npt.ArrayLike, *, rows: int | None = None, columns: int | None = None) -> np.ndarray:
    """A finite (rows, columns) array."""
    x = numbers(name, values)
    if x.ndim != 2 or len(x) == 0:
        raise UserError(f"{name}: expected a non-empty array of rows and columns, got shape {x.shape}")
    if columns is not None and x.shape[1] != columns:
        raise UserError(f"{name}: expected {columns} columns, got {x.shape[1]}")
    return checked(name, x, rows)


def column_of(name: str, values: npt.ArrayLike, rows: int) -> np.ndarray:
    """A finite array of one number per row."""
    x = numbers(name, values)
    if x.ndim != 1:
        raise UserError(f"{name}: expected one number per row, got shape {x.shape}")
    return checked(name, x, rows)


def flags_of(name: str, values: npt.ArrayLike, rows: int) -> np.ndarray:
    x = column_of(name, values, rows)
    if not np.isin(x, (0, 1)).all():
        raise UserError(f"{name}: expected 0 or 1 (or booleans), found other numbers")
    return x


def numbers(name: str, values: npt.ArrayLike) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: expected numbers in an array") from None


def checked(name: str, x: np.ndarray, rows: int | None = None) -> np.ndarray:
    if rows is not None and len(x) != rows:
        raise UserError(f"{name}: expected {rows} rows, got {len(x)}")
    if not np.isfinite(x).all():
        raise UserError(f"{name}: expected finite numbers, found NaN or infinity")
    return x
