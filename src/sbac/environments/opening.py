"""Opens an environment by a task's name, a Gymnasium id or a factory, and checks whether it fits the data.

`module:id` imports the module. Only the person who runs a command may ask for that: a name that a file gives goes
through `may_open` first.
"""

import contextlib
import functools
import importlib
import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from sbac.environments.tasks import find_task, is_task
from sbac.errors import UserError
from sbac.policy import Floats


class Space(Protocol):
    """A flat box of real numbers, as `check_spaces` requires it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    low: Floats
    high: Floats


class Environment(Protocol):
    """The part of Gymnasium's environments that this package uses."""

    observation_space: Space
    action_space: Space

    def reset(self, *, seed: int | None = None) -> tuple[Floats, Mapping[str, object]]: ...
    def step(self, action: Floats, /) -> tuple[Floats, float, bool, bool, Mapping[str, object]]: ...
    def close(self) -> None: ...


EnvSource = str | Callable[[], Any]
"""A task's name, a Gymnasium id, or a function that makes an environment."""
ADROIT = "sbac/Adroit"
"""How the ids of the environments in `sbac.environments.adroit` begin."""
KNOWN_PACKAGES = ("gymnasium", "gymnasium_robotics", "sbac")
"""The packages whose environments may be opened because a file names them."""


def open_environment(env_id: str, **options: Any) -> Any:
    """`gymnasium.make` without its warnings on older versions. An id that cannot be opened is a `UserError`."""
    import warnings

    import gymnasium

    register_own(env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*out of date.*")
        try:
            return gymnasium.make(env_id, **options)
        except (gymnasium.error.Error, ImportError) as error:
            raise no_environment(env_id, error) from None
        except Exception as error:  # of the environment's own code
            raise UserError(f"environment {env_id!r}: {type(error).__name__}: {first_line(error)}") from error


def register_own(env_id: str) -> None:
    """Registers with Gymnasium what it may lack: this package's environments, and those of gymnasium-robotics."""
    import gymnasium

    if env_id.startswith(ADROIT):
        from sbac.environments import adroit

        adroit.register()
    elif env_id not in gymnasium.registry and ":" not in env_id:
        _register_robotics()


@functools.cache
def _register_robotics() -> None:
    """Registers the environments of gymnasium-robotics, if it is installed."""
    with contextlib.suppress(ImportError), contextlib.redirect_stderr(io.StringIO()):  # it prints a notice
        importlib.import_module("gymnasium_robotics")


def no_environment(name: str, error: Exception) -> UserError:
    """Gymnasium's error about a name, in one line."""
    hint = "; a module is looked for on PYTHONPATH" if ":" in name and isinstance(error, ImportError) else ""
    return UserError(f"environment {name!r}: neither a task nor a Gymnasium id ({first_line(error)}{hint})")


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def environment_of(source: EnvSource) -> tuple[str, Callable[[], Environment]]:
    """A name and a factory for a task name, a Gymnasium id or a factory."""
    if callable(source):
        return getattr(source, "__name__", "environment"), source
    _check_source(source)
    name = find_task(source).env_id if is_task(source) else source
    return name, lambda: open_environment(name)


def _check_source(source: object) -> None:
    if not isinstance(source, str):
        raise UserError(
            f"environment: expected a task's name, a Gymnasium id or a function that makes one, got {type(source)}"
        )


def check_known(source: EnvSource) -> None:
    """Refuses a name that no environment has, without opening one."""
    import gymnasium

    if callable(source):
        return
    _check_source(source)
    if is_task(source) or ":" in source:  # Gymnasium knows module:id only once the module is imported
        return
    register_own(source)
    try:
        gymnasium.spec(source)
    except gymnasium.error.Error as error:
        raise no_environment(source, error) from None


def is_known(name: str) -> bool:
    try:
        check_known(name)
    except UserError:
        return False
    return True


def may_open(name: str) -> bool:
    """Whether an environment may be opened because a file names it: this imports known packages and nothing else."""
    import gymnasium

    if is_task(name):
        return True
    if ":" in name or not is_known(name):
        return False
    spec = gymnasium.spec(name)
    wrappers = [wrapper.entry_point for wrapper in spec.additional_wrappers]
    return all(_is_known_code(code) for code in (spec.entry_point, spec.vector_entry_point, *wrappers))


def _is_known_code(entry_point: object) -> bool:
    """Whether what an id stands for is a known package's. A function is here already: it imports nothing new."""
    return not isinstance(entry_point, str) or entry_point.partition(":")[0].split(".")[0] in KNOWN_PACKAGES


class Spaces(NamedTuple):
    """An environment's id, the sizes of its observations and actions, and the bounds of its actions."""

    environment: str
    observations: int
    actions: int
    action_low: Floats
    action_high: Floats


def spaces_of(source: EnvSource) -> Spaces:
    """Opens an environment for a look at its spaces, and closes it."""
    name, make = environment_of(source)
    environment = make()
    check_spaces(environment, name)
    observation, action = environment.observation_space, environment.action_space
    environment.close()
    return Spaces(name, observation.shape[0], action.shape[0], action.low, action.high)


def check_fits(source: EnvSource, observations: int, actions: int) -> None:
    """Refuses an environment whose observations or actions have other sizes than the data's.

    It is opened once to find out, unless it is a task's.
    """
    if isinstance(source, str) and is_task(source):
        name, sizes = source, find_task(source).sizes
    else:
        name, *sizes = spaces_of(source)[:3]
    if tuple(sizes) != (observations, actions):
        raise UserError(
            f"environment {name}: {sizes[0]} observations and {sizes[1]} actions; "
            f"the data have {observations} and {actions}"
        )


def action_bounds(source: EnvSource) -> tuple[Floats, Floats]:
    """The bounds of an environment's actions. An environment without finite ones is refused."""
    import numpy as np

    spaces = spaces_of(source)
    low, high = spaces.action_low, spaces.action_high
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"environment {spaces.environment}: its actions have no finite bounds; give --action-low and --action-high"
        )
    return low, high


def check_spaces(environment: Environment, name: str) -> None:
    """Refuses an environment unless its observations are flat and its actions continuous."""
    import gymnasium

    for kind, space in (("observation", environment.observation_space), ("action", environment.action_space)):
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise UserError(f"environment {name}: {kind} space {space} is not a flat box of real numbers")
