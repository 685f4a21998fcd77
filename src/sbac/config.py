"""What a config field is: one value per run, or shared by all the runs of a program.

A field annotated `float` is an array with one entry per run; a field of any other type is static and shared by all
the runs of one program.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, dataclass_transform, get_args, get_origin

import jax

from sbac.errors import unknown
from sbac.nn import Precision

Class = TypeVar("Class", bound=type)
RewardScale = Literal["none", "unit", "return-range"]


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
