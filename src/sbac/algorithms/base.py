"""What an algorithm is: a config, a list of phases that update a state, and the policy that comes out.

An algorithm's file knows nothing of files, devices, progress bars or environments. Its functions are pure and
written for one run; the engine maps them over runs. A config field that is `per_run` is an array with one entry per
run; a field that is `shared` is static, and all the runs of one program have the same value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbac.config import Config, fields_of
from sbac.errors import UserError
from sbac.nn import MLP
from sbac.nn import Metrics as Metrics

ANY_PRESET = "default"
Past = Mapping[str, Any]  # the final states of the phases before this one, by name


class Spec(NamedTuple):
    """What the networks need to know of the data: its sizes, and a sample of its (standardised) states."""

    observations: int
    actions: int
    states: Float[Array, "sample obs"]


class Rows(NamedTuple):
    """(s, a) of any row, time limits included: all that cloning needs."""

    observations: Float[Array, "batch obs"]
    actions: Float[Array, "batch act"]


class Batch(NamedTuple):
    """Transitions drawn for one step: standardised states, actions in [-1, 1], scaled rewards.

    `next_actions` is the data's own a' (only meaningful in a phase that `needs` "next_action"); on terminal rows
    s' and a' are the row's own and must be masked by `terminals`. What a phase leaves unread costs nothing: the
    compiler removes it.
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
    """Where training stands: `number` counts from 0 and is shared by all runs.

    The engine may write several steps out one after the other; `turn`, the number modulo `unrolled`, is then known
    when the program is traced.
    """

    number: Int[Array, ""]
    unrolled: int = 1
    turn: int = 0

    def every(self, period: int, first: int = 0) -> bool | Array:
        """Whether the number is `first` modulo `period`: a plain bool where that is known."""
        if self.unrolled % period == 0:
            return self.turn % period == first
        return self.number % period == first


Value = TypeVar("Value")


def when(due: bool | Array, do: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """One of the two, chosen when the program is traced where that can be: a choice on the device costs time."""
    if isinstance(due, bool):
        return do() if due else otherwise()
    return jax.lax.cond(due, do, otherwise)


class Actor(eqx.Module):
    """A policy as it leaves the device: `kind` names the formula in `sbac.policy`, the networks are its numbers."""

    kind: str = eqx.field(static=True)
    networks: dict[str, MLP]
    constants: dict[str, Array] = eqx.field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """A stretch of training.

    init(config, spec, past, key) -> state
    update(config, past, state, batch, key, step) -> (state, metrics)
    actor(config, past, state) -> the policy if training stopped here
    validate(config, past, state, batch, key) -> metrics on held-out episodes
    needs: "row" | "next_state" | "next_action", which rows of the data the batch is drawn from
    period(config) -> the number of steps after which what an update does repeats
    """

    name: str
    init: Callable[..., Any]
    update: Callable[..., tuple[Any, Metrics]]
    actor: Callable[..., Actor]
    validate: Callable[..., Metrics] | None = None
    needs: str = "next_state"
    period: Callable[[Any], int] = lambda config: 1


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
    phases: tuple[Phase, ...]
    source: str
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    task_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    grid: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict[str, Mapping[str, Sequence[float]]])
    online: bool = False

    def __post_init__(self) -> None:
        fields = fields_of(self.config)
        tried = [{name: value} for grid in self.grid.values() for name, values in grid.items() for value in values]
        defaults = {"steps": fields["steps"].default}
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
