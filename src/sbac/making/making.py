"""Making data by D4RL's recipe: the policies of a ladder, saved along an online training, act again.

The first ladder of a body is a soft actor-critic's; the second, `-td3`, is TD3's, which acts with noise on its actions.

Tiers, as in D4RL: `random` are uniform actions; `medium` and `expert` are samples of one policy each; `medium-replay`
are the data of training up to the medium policy; `medium-expert` is medium and expert joined.
"""

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from sbac.data.columns import SIDE_ARRAYS
from sbac.data.locating import data_folder, made_names, stand_ins
from sbac.errors import UserError, positive, unknown
from sbac.files import Arrays, write_atomic
from sbac.making.ladder import Ladder, ladder_hash, read_ladders, shipped
from sbac.making.shards import Shard, ShardPool
from sbac.progress import Progress

TIERS = ("random", "medium-replay", "medium", "expert")
SIZE = 1_000_000
REPLAY_SIZES = {"halfcheetah": 200_000, "hopper": 400_000, "walker2d": 300_000}
MOST_SHARDS, MOST_LANES = 8, 128
LANE = 2_000
"""The fewest steps of a lane. A lane finishes its last episode, so short lanes make too many rows."""
REPLAY_SHARDS, REPLAY_LANES = 2, 8
"""As many lanes as there were in training."""


@dataclass(frozen=True)
class Identity:
    """Everything that the rows of made data depend on, on one kind of processor."""

    ladder: str
    tier: str
    size: int
    seed: int
    mujoco: str

    def __str__(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class TierData:
    """Data of one tier; a dataset is one of them, or two joined."""

    ladder: str
    tier: str
    size: int
    seed: int

    def shards(self) -> list[Shard]:
        """The work, cut into pieces that do not depend on the number of workers."""
        path = shipped(self.ladder)
        ladder = read_ladders(path)[0]
        replay = self.tier == "medium-replay"
        count, lanes = (REPLAY_SHARDS, REPLAY_LANES // REPLAY_SHARDS) if replay else layout(self.size)
        rounds = math.ceil(self.size / (count * lanes))
        if replay:
            stages = replay_stages(ladder, rounds)
        else:
            stages = [(None if self.tier == "random" else int(ladder.about[self.tier]), rounds)]
        number = TIERS.index(self.tier)
        return [Shard(str(path), stages, not replay, lanes, (self.seed, number, i)) for i in range(count)]

    def join(self, shards: Sequence[Arrays]) -> Arrays:
        """One shard after the other, the last cut to the size."""
        return first_rows({name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}, self.size)


def first_rows(columns: Arrays, stop: int) -> Arrays:
    """The rows before `stop`. What lies beside them has a row for each terminal one."""
    ended = int(columns["terminals"][:stop].sum())
    return {name: column[: ended if name in SIDE_ARRAYS else stop] for name, column in columns.items()}


def layout(size: int) -> tuple[int, int]:
    """The number of shards, and of lanes in each. Lanes share a pass through the network, shards use the cores."""
    lanes = min(max(size // LANE, 1), MOST_LANES)
    shards = min(math.isqrt(lanes - 1) + 1, MOST_SHARDS)
    return shards, lanes // shards


def replay_stages(ladder: Ladder, rounds: int) -> list[tuple[int | None, int]]:
    """Training up to the medium policy: uniform actions, then each policy until the next; `rounds` steps in all."""
    medium = int(ladder.about["medium"])
    steps = [0, *(rung.step for rung in ladder.rungs[: medium + 1])]
    bounds = np.round(np.array(steps) * (rounds / steps[-1])).astype(int)
    return [(None if i == 0 else i - 1, int(n)) for i, n in enumerate(np.diff(bounds)) if n]


def parse(name: str) -> tuple[str, str]:
    """The ladder and the tier of a made dataset's name: hopper and medium, or hopper-td3 and medium."""
    if name not in made_names():
        raise unknown("dataset that can be made", name, ["all", *made_names()])
    match = re.fullmatch(r"([a-z0-9]+)-(.+?)(-td3)?-made", name)
    assert match is not None
    return match[1] + (match[3] or ""), match[2]


def parts_of(name: str, size: int | None, seed: int) -> list[TierData]:
    """The parts of a dataset: one, or two that are joined."""
    ladder, tier = parse(name)
    if not shipped(ladder).is_file():
        raise UserError(f"{name}: this installation lacks its ladder of policies; reinstall the package")
    if size is not None and size < 1:
        raise UserError(f"size {size}: expected at least 1 transition")
    if tier == "medium-expert":
        half = SIZE if size is None else math.ceil(size / 2)
        return [TierData(ladder, "medium", half, seed), TierData(ladder, "expert", half, seed)]
    whole = REPLAY_SIZES[ladder.removesuffix("-td3")] if tier == "medium-replay" else SIZE
    return [TierData(ladder, tier, size or whole, seed)]


def identity(name: str, size: int | None, seed: int) -> Identity:
    ladder, tier = parse(name)
    total = sum(part.size for part in parts_of(name, size, seed))
    return Identity(ladder_hash(shipped(ladder)), tier, total, seed, version("mujoco"))


def made_identity(path: str | Path) -> Identity | None:
    """The identity of a file, if it is made data; nothing else in the file is read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Identity(**json.loads(str(file["identity"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile):
        return None


def join(parts: Sequence[Arrays]) -> Arrays:
    """Medium and then expert; as in D4RL the first ends with its last complete episode."""
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    stop = int(np.flatnonzero(first["terminals"] | first["timeouts"])[-1]) + 1
    return {name: np.concatenate([kept, second[name]]) for name, kept in first_rows(first, stop).items()}


def make_datasets(
    names: str | Sequence[str],
    out: str | Path | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: bool | None = None,
    size: int | None = None,
) -> list[Path]:
    """Makes datasets, or "all" fifteen stand-ins, as npz files in `out` (default: the data folder); gives their paths.

    The rows depend on the name, the seed and the size, and not on the number of workers (default: one per core). An
    existing file with the same identity is left as it is. `progress` None shows a bar on a terminal.
    """
    if seed < 0:
        raise UserError(f"seed {seed}: expected at least 0")
    listed = [names] if isinstance(names, str) else list(names)
    wanted = stand_ins() if "all" in listed else listed
    folder = data_folder() if out is None else Path(out)
    identities = {name: identity(name, size, seed) for name in wanted}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from None
    paths = {name: folder / f"{name}.npz" for name in wanted}
    missing = [name for name in identities if not is_made(paths[name], identities[name])]
    for name, columns in played(missing, size, seed, workers, progress):
        write(paths[name], name, identities[name], columns)
    return [paths[name] for name in wanted]


def played(
    names: Sequence[str], size: int | None, seed: int, workers: int | None, progress: bool | None
) -> Iterator[tuple[str, Arrays]]:
    """Each dataset when it is complete. Shared parts are played once."""
    positive("workers", workers)
    needs = {name: parts_of(name, size, seed) for name in names}
    parts = list(dict.fromkeys(part for wanted in needs.values() for part in wanted))
    if not parts:
        return
    work = {part: part.shards() for part in parts}
    total = sum(shard.steps for shards in work.values() for shard in shards)
    with Progress(progress) as bar, ShardPool(workers or os.cpu_count() or 1, bar.reach) as pool:
        bar.begin("steps", total)
        answers = {part: [pool.submit(shard) for shard in shards] for part, shards in work.items()}
        kept: dict[TierData, Arrays] = {}
        waiting = list(needs)
        for name in needs:
            waiting.remove(name)
            for part in needs[name]:
                if part not in kept:
                    kept[part] = part.join([answer.result() for answer in answers.pop(part)])
            yield name, join([kept[part] for part in needs[name]])
            needed = {part for later in waiting for part in needs[later]}
            kept = {part: rows for part, rows in kept.items() if part in needed}


def write(path: Path, name: str, identity: Identity, columns: Arrays) -> None:
    """Writes a made dataset, without a copy of it in memory."""
    labels = {"name": name, "kind": "made", "task": name, "identity": str(identity)}
    entries = {**columns, **{key: np.array(text) for key, text in labels.items()}}
    write_atomic(path, lambda file: np.savez(file, allow_pickle=False, **entries))


def is_made(path: Path, identity: Identity) -> bool:
    return path.is_file() and made_identity(path) == identity
