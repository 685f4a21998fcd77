"""What every test process shares: the CPU, one cache of compiled programs, this checkout, checked shapes, no deadlines.

Many tests train the same shapes, so compiled programs are kept for the length of a test session, or longer where
JAX_COMPILATION_CACHE_DIR says where (as `make test` does). The environment carries the settings to xdist's workers and
to the processes that tests start.

The annotations `Float[Array, "batch obs"]` of the networks, the ratio and the algorithms are enforced in every test:
jaxtyping's import hook has beartype check the arguments and results of all their functions. The hook is installed
before any of these modules is imported. The checks run when a program is traced and cost nothing in it.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

from tests.compiling import optimised

CHECKED = ("sbac.nn", "sbac.ratio", "sbac.algorithms")
install_import_hook(CHECKED, "beartype.beartype")

SOURCES = str(Path(__file__).parents[1] / "src")
SECONDS = 0.1
"""A program that compiles faster is not worth a file."""
HASTY = ("algorithms", "nn", "ratio")
"""Folders of tests whose programs run a few times: to optimise them takes longer than it saves."""


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, in every process that a test starts too
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(SECONDS))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # in xdist's workers it is there
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="sbac-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SECONDS)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([SOURCES, *map(os.path.abspath, paths)]))


# A loaded machine is no reason to fail.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; whoever changes it makes a copy first."""
    import sbac
    from tests.small import TINY, make_log

    folder = tmp_path_factory.mktemp("finished") / "run"
    sbac.train(make_log(), "bc", out=folder, **TINY)
    return folder


@pytest.fixture(scope="module", autouse=True)
def compiling(request: pytest.FixtureRequest) -> Iterator[None]:
    """As much optimisation as the tests of a folder are worth."""
    with optimised(request.path.parent.name not in HASTY):
        yield
