"""Which code made a number: the package's version, and a hash of the files that a method's training depends on.

The files are the method's own and all that it imports from `sbac.algorithms`, `sbac.config`, `sbac.nn` and
`sbac.ratio`, with the engine's step loop and the table it draws from (online: the learner and its rounds). Another
method or a report changes nothing; any change in one of these files does, even in a comment.
"""

import ast
import hashlib
from importlib.util import find_spec
from pathlib import Path

from sbac import __version__
from sbac.algorithms import find, module_of

FOLLOWED = ("sbac.algorithms.", "sbac.config", "sbac.nn", "sbac.ratio")
ENGINE = ("sbac.training.engine", "sbac.training.table")
ONLINE_ENGINE = ("sbac.training.online.learner", "sbac.training.online.train")


def code_version(algorithm: str) -> dict[str, str]:
    """The package's version and the hash of the files behind a method."""
    digest = hashlib.sha256()
    for module, path in sorted(sources(algorithm).items()):
        digest.update(f"{module}\n".encode())
        digest.update(path.read_bytes())
    return {"version": __version__, "hash": digest.hexdigest()[:16]}


def sources(algorithm: str) -> dict[str, Path]:
    """The modules behind a method, with their files."""
    files: dict[str, Path] = {}
    engine = ONLINE_ENGINE if find(algorithm).online else ENGINE
    waiting = [module_of(algorithm), *engine]
    while waiting:
        module = waiting.pop()
        path = _file(module)
        if path is None or module in files:
            continue
        files[module] = path
        waiting += [name for name in _imports(path) if name.startswith(FOLLOWED)]
    return files


def _imports(path: Path) -> set[str]:
    """Every module that a file may import; a name taken from a package may itself be one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # a class or a function of a module
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)
