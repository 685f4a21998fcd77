"""From a task's name, a Gymnasium id or a factory to an environment, and whether it fits the data."""

from collections.abc import Callable
from typing import Any

from sbac.environments.tasks import find_task, is_task
from sbac.errors import UserError

EnvSource = str | Callable[[], Any]


def open_environment(env_id: str, **options: Any) -> Any:
    """`gymnasium.make` without its warnings on older versions, and with one line where it fails."""
    import warnings

    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*out of date.*")
        try:
            return gymnasium.make(env_id, **options)
        except (gymnasium.error.Error, ImportError) as error:
            raise no_environment(env_id, error) from None


def no_environment(name: str, error: Exception) -> UserError:
    """What Gymnasium said of a name, in one line."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(f"environment {name!r}: neither a task nor a Gymnasium id ({reason})")


def environment_of(source: EnvSource) -> tuple[str, Callable[[], Any]]:
    """A name and a factory for a task name, a Gymnasium id or a factory."""
    if callable(source):
        return getattr(source, "__name__", "environment"), source
    _check_source(source)
    name = find_task(source).env_id if is_task(source) else source
    return name, lambda: open_environment(name)


def _check_source(source: Any) -> None:
    if not isinstance(source, str):
        raise UserError(
            f"environment: expected a task's name, a Gymnasium id or a function that makes one, got {type(source)}"
        )


def check_known(source: EnvSource) -> None:
    """Refuses a name that no environment has, before anything is trained for it."""
    import gymnasium

    if callable(source):
        return
    _check_source(source)
    if is_task(source) or ":" in source:  # module:id is known once the module is imported
        return
    try:
        gymnasium.spec(source)
    except gymnasium.error.Error as error:
        raise no_environment(source, error) from None


def is_known(name: str) -> bool:
    """Whether a name is an environment's."""
    try:
        check_known(name)
    except UserError:
        return False
    return True


def check_fits(source: EnvSource, observations: int, actions: int) -> None:
    """Opens an environment once and refuses one whose states or actions are not those of the data."""
    name, make = environment_of(source)
    environment = make()
    check_spaces(environment, name)
    sizes = environment.observation_space.shape[0], environment.action_space.shape[0]
    environment.close()
    if sizes != (observations, actions):
        raise UserError(
            f"environment {name}: {sizes[0]} observations and {sizes[1]} actions; "
            f"the data have {observations} and {actions}"
        )


def check_spaces(environment: Any, name: str) -> None:
    """Flat observations and continuous actions only."""
    import gymnasium

    for kind, space in (("observation", environment.observation_space), ("action", environment.action_space)):
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise UserError(f"environment {name}: {kind} space {space} is not a flat box of real numbers")
