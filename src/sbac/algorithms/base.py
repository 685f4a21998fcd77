"""What an algorithm is: a config, a list of phases that update a state, and the policy that comes out.

An algorithm's file knows nothing of files, devices, progress bars or environments. Its functions are pure and
written for one run; the engine maps them over runs. A config field annotated `float` is an array with one entry
per run; a field of any other type is static and shared by all the runs of one program.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbac.errors import unknown
from sbac.nn import MLP, Precision

Class = TypeVar("Class", bound=type)
RewardScale = Literal["none", "unit", "return-range"]
Metrics = dict[str, Array]
Past = Mapping[str, Any]  # the final states of the phases before this one, by name


def shared(default: Any) -> Any:
    """A float field that is the same for all runs of a launch, because it shapes the data and not the update."""
    return field(default=default, metadata={"shared": True})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(shared, field))
def config(cls: Class) -> Class:
    """A frozen dataclass that is a pytree: its float fields are leaves, all others are static."""
    made = dataclass(frozen=True, kw_only=True)(cls)
    return jax.tree_util.register_dataclass(
        made,
        data_fields=[f.name for f in dataclasses.fields(made) if is_per_run(f)],
        meta_fields=[f.name for f in dataclasses.fields(made) if not is_per_run(f)],
    )


def check_choice(f: "dataclasses.Field[Any]", value: Any, name: str | None = None) -> None:
    """Refuses a value that a field annotated with a `Literal` does not list, with the nearest one that it does."""
    if get_origin(f.type) is Literal and value not in get_args(f.type):
        raise unknown(name or f.name, str(value), get_args(f.type))


def is_per_run(f: "dataclasses.Field[Any]") -> bool:
    """Whether the field is an array with one entry per run."""
    return f.type is float and not f.metadata.get("shared", False)


@config
class Config:
    """What every algorithm has."""

    steps: tuple[int, ...]
    """Gradient steps, one number per phase."""
    batch_size: int = 256
    discount: float = 0.99
    standardise_states: bool = True
    """States enter the networks as (s - mean) / std over the data; the policy carries both numbers."""
    reward_scale: RewardScale = "none"
    """none; unit: (r - min) / (max - min); return-range: 1000 r / (max return - min return)."""
    validation: float = shared(0.05)
    """Share of the episodes kept out of training for the validation losses."""
    precision: Precision = "tf32"
    """Of the networks' products: float32, tf32 or bfloat16; see `sbac.nn.precision`."""


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
    published for one task. `online` marks methods that act in an environment instead of reading a log.
    """

    name: str
    config: type[Config]
    phases: tuple[Phase, ...]
    source: str
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    task_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    online: bool = False


def split(key: PRNGKeyArray, count: int) -> tuple[PRNGKeyArray, ...]:
    """`count` independent keys, to be unpacked by name."""
    return tuple(jax.random.split(key, count))
