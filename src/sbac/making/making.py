"""Making data by D4RL's recipe: policies along a soft actor-critic's training, kept as a ladder, acting again.

Tiers, as in D4RL: `random` are uniform actions; `medium` and `expert` are samples of one policy each; `medium-replay`
is what training gathered up to the medium policy, `medium-expert` both joined.
"""

import contextlib
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from sbac import interrupts
from sbac.data.dataset import Dataset
from sbac.data.loading import data_folder, made_names
from sbac.errors import UserError, unknown
from sbac.making.ladder import Ladder, ladder_hash, read_ladders, shipped
from sbac.making.shards import Columns, Played, Pool, Shard
from sbac.progress import Progress

TIERS = ("random", "medium-replay", "medium", "expert")
SIZE = 1_000_000
REPLAY_SIZES = {"halfcheetah": 200_000, "hopper": 400_000, "walker2d": 300_000}
MOST_SHARDS, MOST_LANES = 8, 128
LANE = 2_000
"""The fewest steps of a lane: it goes on to the end of its last episode, so short lanes overshoot."""
REPLAY_SHARDS, REPLAY_LANES = 2, 8
"""As many lanes as training gathered its data with."""


@dataclass(frozen=True)
class Identity:
    """What decides the rows of made data, on one kind of processor."""

    ladder: str
    tier: str
    size: int
    seed: int
    mujoco: str

    def __str__(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Part:
    """Data of one tier that is not joined from others."""

    body: str
    tier: str
    size: int
    seed: int

    def shards(self) -> list[Shard]:
        """The work, cut in pieces that do not depend on who does them."""
        path = shipped(self.body)
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

    def join(self, shards: Sequence[Columns]) -> Columns:
        """One shard after the other, the last cut to the size."""
        return {name: np.concatenate([shard[name] for shard in shards])[: self.size] for name in shards[0]}


def layout(size: int) -> tuple[int, int]:
    """Shards, and lanes of each: many lanes share a pass through the network, several shards share the cores."""
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
    """The body and the tier of a made dataset's name."""
    if name not in made_names():
        raise unknown("dataset that can be made", name, ["all", *made_names()])
    match = re.fullmatch(r"([a-z0-9]+)-(.+)-made", name)
    assert match is not None
    return match[1], match[2]


def parts_of(name: str, size: int | None, seed: int) -> list[Part]:
    """What a dataset consists of: one part, or two that are joined."""
    body, tier = parse(name)
    if not shipped(body).is_file():
        raise UserError(f"{name}: this installation lacks its ladder of policies; reinstall the package")
    if size is not None and size < 1:
        raise UserError(f"size {size}: expected at least 1 transition")
    if tier == "medium-expert":
        half = SIZE if size is None else math.ceil(size / 2)
        return [Part(body, "medium", half, seed), Part(body, "expert", half, seed)]
    return [Part(body, tier, size or (REPLAY_SIZES[body] if tier == "medium-replay" else SIZE), seed)]


def identity(name: str, size: int | None, seed: int) -> Identity:
    """Of the dataset that would be made."""
    body, tier = parse(name)
    total = sum(part.size for part in parts_of(name, size, seed))
    return Identity(ladder_hash(shipped(body)), tier, total, seed, version("mujoco"))


def made_identity(path: str | Path) -> Identity | None:
    """Of a file, if it is made data; only this one entry is read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Identity(**json.loads(str(file["identity"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile):
        return None


def join(parts: Sequence[Columns]) -> Columns:
    """Medium and expert one after the other; as in D4RL the first ends with its last complete episode."""
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    stop = int(np.flatnonzero(first["terminals"] | first["timeouts"])[-1]) + 1
    return {name: np.concatenate([first[name][:stop], second[name]]) for name in first}


def make_datasets(
    names: str | Sequence[str],
    out: str | Path | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: bool | None = None,
    size: int | None = None,
) -> list[Path]:
    """Makes datasets, or "all" fifteen, as npz files in `out` (default: the data folder) and returns their paths.

    The rows depend on the name, the seed and the size, and not on the number of workers (default: one per core). A
    file that is there already with the same identity is left alone. `progress` None shows a bar on a terminal.
    """
    if seed < 0:
        raise UserError(f"seed {seed}: expected at least 0")
    listed = [names] if isinstance(names, str) else list(names)
    wanted = made_names() if "all" in listed else listed
    folder = data_folder() if out is None else Path(out)
    identities = {name: identity(name, size, seed) for name in wanted}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from None
    paths = {name: folder / f"{name}.npz" for name in wanted}
    missing = [name for name in identities if not is_made(paths[name], identities[name])]
    for name, columns, _ in made(missing, size, seed, workers, progress):
        write(paths[name], name, identities[name], columns)
    return [paths[name] for name in wanted]


def make_dataset(
    name: str, seed: int = 0, workers: int | None = None, progress: bool | None = None, size: int | None = None
) -> Dataset:
    """Makes one dataset without writing it."""
    [(_, columns, _)] = made([name], size, seed, workers, progress)
    return Dataset(**columns, name=name, kind="made", task=name)


def made(
    names: Sequence[str], size: int | None, seed: int, workers: int | None, progress: bool | None
) -> Iterator[tuple[str, Columns, float]]:
    """Each dataset as soon as it is complete, with the processor's seconds; what several need is played once."""
    if workers is not None and workers < 1:
        raise UserError(f"workers {workers}: expected at least 1")
    needs = {name: parts_of(name, size, seed) for name in names}
    parts = list(dict.fromkeys(part for wanted in needs.values() for part in wanted))
    if not parts:
        return
    work = {part: part.shards() for part in parts}
    total = sum(shard.steps for shards in work.values() for shard in shards)
    with (
        tempfile.TemporaryDirectory(prefix="sbac-") as scratch,
        Progress(progress) as bar,
        Pool(workers or os.cpu_count() or 1, Path(scratch), bar.advance) as pool,
    ):
        bar.begin("steps", total)
        answers = {part: [pool.submit(shard) for shard in shards] for part, shards in work.items()}
        kept: dict[Part, Played] = {}
        waiting = list(needs)
        for name in needs:
            waiting.remove(name)
            for part in needs[name]:
                interrupts.check()
                if part not in kept:
                    shards = [answer.result() for answer in answers.pop(part)]
                    kept[part] = part.join([columns for columns, _ in shards]), sum(seconds for _, seconds in shards)
            own = [kept[part] for part in needs[name]]
            yield name, join([columns for columns, _ in own]), sum(seconds for _, seconds in own)
            still = {part for later in waiting for part in needs[later]}
            kept = {part: played for part, played in kept.items() if part in still}


def write(path: Path, name: str, identity: Identity, columns: Columns) -> None:
    """Writes beside and renames over, without a copy in memory."""
    about = {"name": name, "kind": "made", "task": name, "identity": str(identity)}
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **columns, **{key: np.array(text) for key, text in about.items()})
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def is_made(path: Path, identity: Identity) -> bool:
    """Whether the file is there with this identity."""
    return path.is_file() and made_identity(path) == identity
