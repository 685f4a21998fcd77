"""What an algorithm is: a config, a list of phases that update a state, and the policy that comes out.

An algorithm's file knows nothing of files, devices, progress bars or environments. Its functions are pure and
written for one run; the engine maps them over runs. A config field that is `per_policy` is an array with one entry per
run; a field that is `shared` is static, and all the runs of one program have the same value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbac.config import Config, fields_of
from sbac.errors import UserError
from sbac.nn import MLP, Tree, choose
from sbac.nn import Metrics as Metrics

ANY_PRESET = "default"
"""In a method's `grid`: the presets that it does not name."""

Past = Mapping[str, Tree]
"""The final states of the phases before this one, by the phase's name. A method knows the types of its own states
and names them where it reads them: `before: Estimate = past["estimate"]`."""

Needs = Literal["row", "next_state", "next_action"]
"""Which rows of the data a phase draws its batches from: any row, those with a known s', or those with a known a'."""


class Spec(NamedTuple):
    """What the networks are built from: the data's sizes, and a sample of its (standardised) states."""

    observations: int
    actions: int
    states: Float[Array, "sample obs"]


class Rows(NamedTuple):
    """(s, a) of any row, time limits included: enough for cloning."""

    observations: Float[Array, "batch obs"]
    actions: Float[Array, "batch act"]


class Batch(NamedTuple):
    """Transitions drawn for one step: standardised states, actions in [-1, 1], scaled rewards.

    `next_actions` is the data's own a' (only meaningful in a phase that `needs` "next_action"); on terminal rows
    s' and a' are the row's own and must be masked by `terminals`. A field that a phase does not read costs nothing:
    the compiler removes it.
    """

    observations: Float[Array, "batch obs"]
    actions: Float[Array, "batch act"]
    rewards: Float[Array, " batch"]
    next_observations: Float[Array, "batch obs"]
    next_actions: Float[Array, "batch act"]
    terminals: Float[Array, " batch"]
    rows: Rows
    initial_observations: Float[Array, "batch obs"]


class Step(NamedTuple):
    """The step that an update takes: `number` counts from 0 and is the same for all runs.

    The engine may write several steps out one after the other; `turn`, the number modulo `unrolled`, is then known
    when the program is traced.
    """

    number: Int[Array, ""]
    unrolled: int = 1
    turn: int = 0

    def every(self, period: int, first: int = 0) -> bool | Bool[Array, ""]:
        """Whether the number is `first` modulo `period`: a plain bool where that is known."""
        if self.unrolled % period == 0:
            return self.turn % period == first
        return self.number % period == first


Value = TypeVar("Value")


def when(due: bool | Bool[Array, ""], do: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """One of the two; chosen when the program is traced, if `due` is known then: a choice on the device costs time."""
    if isinstance(due, bool):
        return do() if due else otherwise()
    return choose(due, do, otherwise)


class Actor(eqx.Module):
    """A policy on its way from the device: `kind` names its formula in `sbac.policy`, the arrays are its numbers."""

    kind: str = eqx.field(static=True)
    networks: dict[str, MLP]
    constants: dict[str, Array] = eqx.field(default_factory=dict)


# --- Phases -----------------------------------------------------------------------------------------------------
#
# The four functions of a phase. All are pure and written for one run: the engine maps them over runs with `jax.vmap`
# and compiles them, so that a config's per-policy fields arrive as traced scalars, on which no Python `if` may branch.

StateT = TypeVar("StateT")
ConfigIn = TypeVar("ConfigIn", contravariant=True)
StateIn = TypeVar("StateIn", contravariant=True)
StateOut = TypeVar("StateOut", covariant=True)


@runtime_checkable
class Init(Protocol[ConfigIn, StateOut]):
    """The first state of a phase."""

    def __call__(self, config: ConfigIn, spec: Spec, past: Past, key: PRNGKeyArray, /) -> StateOut:
        """**Arguments:**

        - `config`: the method's config, of one run.
        - `spec`: the data's sizes and a sample of its states.
        - `past`: the final states of the earlier phases, by name; empty in the first phase.
        - `key`: the run's key for this phase.

        **Returns:** the state: a pytree of arrays (an `equinox.Module`). Its structure, shapes and types stay the
        same through all updates. The names of its fields are those of the arrays in a checkpoint.
        """
        ...


@runtime_checkable
class Update(Protocol[ConfigIn, StateT]):
    """One step of training."""

    def __call__(
        self, config: ConfigIn, past: Past, state: StateT, batch: Batch, key: PRNGKeyArray, step: Step, /
    ) -> tuple[StateT, Metrics]:
        """**Arguments:**

        - `config`, `past`: as in `Init`.
        - `state`: what `Init` or the last update returned.
        - `batch`: `config.batch_size` transitions, drawn with replacement from the rows that the phase `needs`.
        - `key`: a fresh key for this step.
        - `step`: the number of the step.

        **Returns:** the next state, and metrics: scalars under the same names at every step. The engine records
        their mean over a stretch of steps.
        """
        ...


@runtime_checkable
class MakeActor(Protocol[ConfigIn, StateIn]):
    """The policy of a state."""

    def __call__(self, config: ConfigIn, past: Past, state: StateIn, /) -> "Actor":
        """**Arguments:**

        - `config`, `past`: as in `Init`.
        - `state`: that of any step, not only of the last one.

        **Returns:** the policy that training would end with if it stopped here.
        """
        ...


@runtime_checkable
class Validate(Protocol[ConfigIn, StateIn]):
    """Losses on held-out episodes."""

    def __call__(self, config: ConfigIn, past: Past, state: StateIn, batch: Batch, key: PRNGKeyArray, /) -> Metrics:
        """**Arguments:**

        - `config`, `past`: as in `Init`.
        - `state`: the state to judge.
        - `batch`: transitions of episodes that training never draws from.
        - `key`: for losses that draw samples.

        **Returns:** metrics, recorded under `validation_` and their name.
        """
        ...


@runtime_checkable
class Conclude(Protocol[ConfigIn, StateT]):
    """A last look at held-out rows when the phase is over."""

    def __call__(self, config: ConfigIn, past: Past, state: StateT, batch: Batch, key: PRNGKeyArray, /) -> StateT:
        """**Arguments:** those of `Validate`; without held-out episodes the rows are the training's own.

        **Returns:** the phase's final state. To conclude it a second time changes nothing.
        """
        ...


def always(config: object) -> int:
    """The period of an update that takes the same kind of step every time."""
    return 1


@dataclass(frozen=True)
class Phase(Generic[ConfigIn, StateT]):
    """A stretch of training: a state, the update that is repeated on it, and the policy that it gives.

    `validate` and `conclude` may be left out. `period(config)` is the number of steps after which the kind of step
    that an update takes repeats (a policy that moves every second step: 2).
    """

    name: str
    init: Init[ConfigIn, StateT]
    update: Update[ConfigIn, StateT]
    actor: MakeActor[ConfigIn, StateT]
    validate: Validate[ConfigIn, StateT] | None = None
    needs: Needs = "next_state"
    period: Callable[[ConfigIn], int] = always
    conclude: Conclude[ConfigIn, StateT] | None = None


AnyPhase = Phase[Any, Any]
"""A phase of any method."""


@dataclass(frozen=True)
class Algorithm:
    """A method: its phases, its config with the settings known by name, and where it comes from.

    `presets` maps a preset to the fields it changes; `task_settings` adds, for the `paper` preset, what was
    published for one task. `grid` has the settings that a bench tries, by preset: a field and its values, under
    ANY_PRESET for all the presets that it does not name. `online` marks methods that act in an environment instead of
    reading a log. A setting that the config does not have, or that is out of its range, is refused here.
    """

    name: str
    config: type[Config]
    phases: tuple[AnyPhase, ...]
    source: str
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    task_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    grid: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict[str, Mapping[str, Sequence[float]]])
    online: bool = False

    def __post_init__(self) -> None:
        fields = fields_of(self.config)
        tried: list[dict[str, Any]] = [
            {name: value} for grid in self.grid.values() for name, values in grid.items() for value in values
        ]
        defaults: dict[str, Any] = {"steps": fields["steps"].default}
        for settings in (defaults, *self.presets.values(), *self.task_settings.values(), *tried):
            for name, value in settings.items():
                if name not in fields:
                    raise TypeError(f"{self.name}: {name} is not a field of {self.config.__name__}")
                if name == "steps" and len(value) != len(self.phases):
                    raise TypeError(f"{self.name}: steps {value}; expected one number for each of its phases")
                try:
                    fields[name].convert(value)
                except UserError as error:
                    raise TypeError(f"{self.name}: {error}") from None
        for preset in self.grid:
            if preset not in (ANY_PRESET, *self.presets):
                raise TypeError(f"{self.name}: a grid for preset {preset!r}, which it does not have")

    def settings_to_try(self, preset: str) -> Mapping[str, Sequence[float]]:
        """What a bench tries with a preset."""
        return self.grid.get(preset, self.grid.get(ANY_PRESET, {}))


def split(key: PRNGKeyArray, count: int) -> tuple[PRNGKeyArray, ...]:
    """`count` independent keys, to be unpacked by name."""
    return tuple(jax.random.split(key, count))
