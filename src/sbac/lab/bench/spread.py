"""Spreads the cells of a bench over the nodes of a cluster, and collects what they made into one results folder.

A task is a group of cells. A node trains it in a folder of its own and answers with files, so nodes share nothing but
the installed package. A task whose node is lost is sent again from its beginning. What is collected is on disk at once:
a bench that is stopped continues with what is missing.
"""

import json
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from sbac import files
from sbac.errors import UserError
from sbac.lab.bench.bench import Bench, CellGroup, Outcome, group_name
from sbac.lab.bench.finding import PlacedCell
from sbac.lab.bench.parcels import Answered, Asked, Files, pack, pack_dataset, unpack
from sbac.lab.bench.ray_cluster import Lost, RayCluster
from sbac.lab.cells import CellRecord, parse_cell, path_of, write_cell
from sbac.text import counted
from sbac.training.folder import OpenFolder

ATTEMPTS = 4
"""How often a task is sent before its cells count as failed: a node may be lost three times."""
RUN_FILES = ("config.json", "metrics.jsonl", "evaluations.jsonl")


@dataclass
class Nodes:
    """Trains groups of cells on the nodes of a cluster, each with the final episodes of its policies."""

    cluster: RayCluster
    _stored: dict[str, object] = field(init=False, default_factory=dict[str, object])
    """What stands for the datasets on the cluster, by their identity."""

    def at_once(self, mates: int) -> int:
        """One cell for each task, or on GPUs, which several fill better, as many as leave no device idle."""
        return math.ceil(mates / self.cluster.devices) if self.cluster.has_accelerators else 1

    def train(self, groups: Sequence[CellGroup], bench: Bench) -> Generator[Outcome, None, None]:
        locks: dict[PlacedCell, OpenFolder] = {}
        under_way: dict[object, tuple[CellGroup, int]] = {}
        try:
            for group in groups:
                for at in group:
                    try:
                        self._store(at, bench)
                        locks[at] = _locked(at)
                    except UserError as error:
                        yield at, error
                ours = [at for at in group if at in locks]
                if ours:
                    bench.say(f"{bench.title(ours)}, sent")
                    under_way[self._send(ours, bench)] = ours, 1
            while under_way:
                for ticket in self.cluster.wait(list(under_way), 1.0):
                    group, attempt = under_way.pop(ticket)
                    try:
                        answered, made = unpack(Answered, self.cluster.answer(ticket))
                    except Lost as loss:
                        if attempt < ATTEMPTS:
                            bench.say(f"{group_name(group)}: lost ({loss}), sent again")
                            under_way[self._send(group, bench)] = group, attempt + 1
                            continue
                        answered, made = Answered(error=f"lost {ATTEMPTS} times; the last: {loss}"), {}
                    if made:
                        cells = counted(sum(name.startswith("cells/") for name in made), "cell")
                        bench.say(f"{group_name(group)}: {cells} from {answered.node}, {answered.seconds:.0f} s")
                    yield from ((at, _take(at, locks.pop(at), answered, made)) for at in group)
        finally:
            for folder in locks.values():
                folder.restore()
                folder.close()

    def _store(self, at: PlacedCell, bench: Bench) -> None:
        """Hands a cell's dataset over, once."""
        if not at.cell.online and at.identity not in self._stored:
            self._stored[at.identity] = self.cluster.store(pack_dataset(bench.finder.data(at), at.identity))

    def _send(self, group: CellGroup, bench: Bench) -> object:
        cells, keys = [at.cell for at in group], [at.key for at in group]
        asked = Asked(cells, keys, bench.finder.protocol, bench.workers, bench.evaluate)
        return self.cluster.send(pack(asked), [self._stored[at.identity] for at in group if not at.cell.online])


def _locked(at: PlacedCell) -> OpenFolder:
    is_new = not at.folder.exists()
    folder = OpenFolder(at.folder)
    folder.is_new = is_new
    return folder


def _take(at: PlacedCell, folder: OpenFolder, answered: Answered, made: Files) -> CellRecord | UserError:
    """Writes the files of a cell where this bench would have made them, or says why there are none."""
    try:
        with folder:  # one that nothing is written into goes
            return _write(at, answered, made)
    except UserError as error:
        return error


def _write(at: PlacedCell, answered: Answered, made: Files) -> CellRecord:
    cell, run = (str(path.relative_to(at.results)) for path in (at.file, at.folder))
    if cell not in made:
        raise UserError(answered.error or answered.failures.get(at.key, f"{answered.node}: no answer"))
    record = parse_cell(json.loads(made[cell]), f"{answered.node}: {at.cell.name}")
    # These files and no others are written, the cell's own last.
    wanted = [f"{run}/{name}" for name in RUN_FILES]
    wanted += [f"{run}/policies/{member.label}.safetensors" for member in at.runs]
    if path_of(at.results, record) != at.file or not set(wanted) <= set(made):
        raise UserError(f"{answered.node}: the answer is not that of {at.cell.name}")
    for name in wanted:
        files.write_atomic(at.results / name, made[name])
    files.remove(at.folder / "checkpoint")  # of a training that was begun here
    write_cell(at.results, record)
    return record
