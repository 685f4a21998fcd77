"""Where a log is: the files behind a name, a path, a folder or a pattern."""

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbac.data.formats import is_log, suffixes
from sbac.data.formats.log import is_file, one_line
from sbac.environments.tasks import EMBEDDED, TASKS, TD3_TIERS, find_task, is_task, task_of_file
from sbac.errors import UserError, unknown
from sbac.files import in_home


def parts_of(source: Any) -> list[Any]:
    """The sources that a source stands for: those of a list, the files of a pattern or of a folder, or itself."""
    if isinstance(source, list | tuple):
        items: list[Any] = [*source]
        for item in items:
            if not isinstance(item, str | Path):
                raise UserError(f"expected names of files, got {type(item).__name__}")
        if not items:
            raise UserError("expected at least one file, got an empty list")
        return [part for item in items for part in parts_of(item)]
    if not isinstance(source, str | Path):
        return [source]
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            files = [file for file in sorted(path.iterdir()) if is_file(file, *suffixes()) and file.is_file()]
            return files if files and not is_log(path) else [source]
        if path.exists() or not any(sign in str(source) for sign in "*?["):
            return [source]
        matches = [Path(match) for match in sorted(glob.glob(str(path)))]
    except (OSError, ValueError, RuntimeError):
        return [source]  # `locate` says what is wrong with it
    if not matches:
        raise UserError(f"{source}: no file matches the pattern")
    return [*matches]


@dataclass(frozen=True)
class Located:
    """The path of a source, and the arguments of `Dataset` that follow from its name."""

    path: Path
    description: dict[str, str]


def data_folder() -> Path:
    """The folder of the datasets: $SBAC_DATA, or `data` in the current folder."""
    return Path(os.environ.get("SBAC_DATA") or "data")


def embedded_file(name: str) -> Path:
    """The file of a dataset that comes with the package."""
    return Path(__file__).parent / "embedded" / f"{name}.npz"


def d4rl_folders() -> list[Path]:
    """The folders in which D4RL's files are looked for: the data folder, the current one, and D4RL's own cache."""
    cache = os.environ.get("D4RL_DATASET_DIR") or "~/.d4rl/datasets"
    return [data_folder(), Path("."), in_home(cache)]


def locate(source: str | Path) -> Located:
    """Finds a source by its name, or as a path."""
    name = str(source)
    if name in EMBEDDED:
        path = embedded_file(name)
        if not path.is_file():
            raise UserError(f"{name}: this installation lacks its embedded dataset; reinstall the package")
        return Located(path, {"name": name, "kind": "embedded", "task": name})
    if is_task(name):
        return _locate_made(name) if name.endswith("-made") else _locate_d4rl(name)
    try:
        path = Path(source).expanduser()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{name!r}: not a path: {one_line(error)}") from error
    if exists:
        d4rl = task_of_file(path.name)
        return Located(path, {"kind": "D4RL", "task": d4rl} if d4rl else {})
    from sbac.data.formats import minari  # and h5py, which the names above do not need

    if (folder := minari.installed(name)) is not None:
        return Located(folder, {"name": name})
    if is_file(path, *suffixes()) or isinstance(source, Path) or name.startswith((".", "/", "~")):
        raise UserError(f"{name}: no such file or folder")
    if "/" in name and minari.is_id(name):
        raise UserError(
            f"{name}: not among the Minari datasets in {minari.root()}; get it with `minari download {name}` "
            "(pip install 'sbac[minari]')"
        )
    raise unknown("dataset (and no such file)", name, [*EMBEDDED, *TASKS, *made_names()])


def stand_ins() -> list[str]:
    """Made data in place of D4RL's: hopper-medium-made."""
    return [name.replace("-v2", "-made") for name in TASKS if name.endswith("-v2")]


def made_names() -> list[str]:
    """What `sbac data make` makes: the stand-ins, then the logs of the second ladder, hopper-medium-td3-made."""
    return stand_ins() + [name.replace("-v2", "-td3-made") for name in TASKS if name.endswith(TD3_TIERS)]


def _locate_made(name: str) -> Located:
    path = data_folder() / f"{name}.npz"
    if not path.is_file():
        raise UserError(f"{name}: not made yet (no {path}); make it with `sbac data make {name}`")
    return Located(path, {"name": name, "kind": "made", "task": name})


def _locate_d4rl(name: str) -> Located:
    task = find_task(name)
    for folder in d4rl_folders():
        for file in task.files:
            if (folder / file).is_file():
                return Located(folder / file, {"name": name, "kind": "D4RL", "task": name})
    made = re.sub(r"-v\d$", "-made", name)
    stand_in = f", or make its stand-in with `sbac data make {made}` and load {made}" if is_task(made) else ""
    if replayed := re.fullmatch(r"(\w+)-human-v1", name):
        same = f"D4RL/{replayed[1]}/human-v2"
        stand_in = f", or get Minari's replay of it with `minari download {same}` and load {same}"
    raise UserError(f"{name}: put D4RL's file {task.files[0]} into {data_folder()} ($SBAC_DATA){stand_in}")
