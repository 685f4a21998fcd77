"""OGBench's npz arrays. `terminals` ends a trajectory, and `masks` is 0 where the task is done and nothing follows."""

from pathlib import Path

from sbac.data.formats.arrays import in_archive, log_of_npy
from sbac.data.formats.log import Format, Log, Rows, is_file, with_flags
from sbac.data.naming import NAMES, ColumnMap, match
from sbac.errors import UserError


def recognises(path: Path) -> bool:
    """Whether an npz file has OGBench's masks, or its states of the simulator and no rewards."""
    if not is_file(path, ".npz"):
        return False
    names = in_archive(path).sizes.keys()
    masked = {"masks", "terminals"} <= names and not names & set(NAMES["timeouts"])
    return masked or ({"observations", "actions", "terminals", "qpos"} <= names and not names & set(NAMES["rewards"]))


def open_arrays(path: Path, columns: ColumnMap | None) -> Log:
    """The ends of trajectories are time limits; terminals come from the masks."""
    stored = in_archive(path)
    if "qpos" in stored.sizes and "rewards" not in match(stored.sizes, columns, str(path), needed=()):
        raise UserError(
            f"{path}: rewards: missing; this OGBench file has no task. Load it with ogbench.make_env_and_datasets and "
            "the name of a singletask environment, and save the arrays that it gives (numpy.savez)"
        )
    names = match(stored.sizes, columns, str(path))
    if "masks" not in stored.sizes or "timeouts" in names:
        return log_of_npy(stored, names)
    return with_flags(log_of_npy(stored, {**names, "masks": ["masks"]}), "masks", ("terminals", "timeouts"), _ends)


def _ends(block: Rows) -> Rows:
    done = block["masks"].reshape(-1) == 0
    return {"terminals": done, "timeouts": (block["terminals"].reshape(-1) != 0) & ~done}


OGBENCH = Format(recognises, open_arrays)
