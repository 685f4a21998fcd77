"""A bench on a cluster: every cell once, with the bits of a bench on this machine, whatever is lost on the way."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbac.cli import main
from sbac.data import Dataset, load
from sbac.errors import UserError
from sbac.lab.bench import spread
from sbac.lab.bench.node import run_task
from sbac.lab.bench.parcels import pack_dataset, unpack_dataset
from sbac.lab.bench.plan import Cell, plan
from sbac.lab.bench.ray_cluster import task_shape
from sbac.lab.bench.runner import Bench
from sbac.lab.bench.spread import Lost, Spread
from sbac.lab.cells import read_cells
from sbac.lab.protocol import Protocol
from sbac.training.folder import OpenFolder

PROTOCOL = Protocol(episodes=1, final_episodes=2)
VARY = ("machine", "date", "seconds")
"""What two trainings of the same cell differ in."""


class InProcess:
    """A cluster of one node, this process, which loses the tasks that it is told to."""

    def __init__(self, lost: Sequence[int] = (), gpus: int = 0) -> None:
        self.has_accelerators, self.devices = gpus > 0, max(gpus, 1)
        self.lost, self.sent, self.stored = set(lost), list[tuple[bytes, Sequence[Any]]](), list[bytes]()

    def store(self, data: bytes) -> int:
        self.stored.append(data)
        return len(self.stored) - 1

    def send(self, task: bytes, stored: Sequence[Any]) -> int:
        self.sent.append((task, stored))
        return len(self.sent) - 1

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        return list(tickets[-1:])  # answers come in any order

    def answer(self, ticket: Any) -> bytes:
        if ticket in self.lost:
            raise Lost("NodeDied")
        task, stored = self.sent[ticket]
        return run_task(task, *(self.stored[i] for i in stored))


def make_log(path: Path, seed: int, rows: int = 300, stored: bool = False) -> str:
    rng = np.random.default_rng(seed)
    ends = np.zeros(rows, bool)
    ends[49::50] = True
    observations = rng.normal(size=(rows, 3))
    data = Dataset(
        observations=observations,
        actions=rng.uniform(-2, 2, (rows, 1)),
        rewards=rng.normal(size=rows),
        terminals=np.zeros(rows, bool),
        timeouts=ends,
        next_observations=observations + 1 if stored else None,
        action_low=[-2.0],
        action_high=[2.0],
    )
    data.save(path)
    return str(path)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    return [make_log(folder / f"log{i}.npz", i) for i in range(3)]


def cells(logs: Sequence[str], steps: int = 20, environment: str | None = "Pendulum-v1") -> list[Cell]:
    options = {"batch_size": 8, "hidden": [8]}
    return plan(logs, ["bc"], seeds=1, length=[steps], grids={"bc": options}, environment=environment)


@pytest.fixture(scope="module")
def here(logs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same cells, made by a bench on this machine, one by one."""
    results = tmp_path_factory.mktemp("here")
    Bench(cells(logs), results, PROTOCOL, workers=1).run()
    return results


def assert_same_results(ours: Path, theirs: Path) -> None:
    """The same cells with the same numbers, and the same policies, byte by byte."""

    def measured(results: Path) -> list[dict[str, Any]]:
        found = [json.loads(path.read_bytes()) for path in sorted((results / "cells").rglob("*.json"))]
        return [{name: value for name, value in cell.items() if name not in VARY} for cell in found]

    def kept(results: Path) -> dict[str, bytes]:
        runs = results / "runs"
        return {str(path.relative_to(runs)): path.read_bytes() for path in runs.rglob("*") if path.is_file()}

    assert measured(ours) == measured(theirs)
    mine, other = kept(ours), kept(theirs)
    assert mine.keys() == other.keys() and len(mine) > 0
    for name in (name for name in mine if name.endswith((".safetensors", "config.json"))):
        assert mine[name] == other[name], name


@pytest.mark.parametrize("stored", [False, True])
def test_a_dataset_arrives_as_it_was(tmp_path: Path, stored: bool) -> None:
    data = load(make_log(tmp_path / "log.npz", 0, stored=stored))
    back = unpack_dataset(pack_dataset(data))
    assert back.hash == data.hash and (back.name, back.kind, back.task) == (data.name, data.kind, data.task)


def test_every_cell_once_with_the_same_bits_though_tasks_are_lost(logs: list[str], here: Path, tmp_path: Path) -> None:
    said: list[str] = []
    cluster = InProcess(lost=[0, 2, 3])
    bench = Spread(cells(logs), tmp_path, cluster, PROTOCOL, workers=1, say=said.append)
    bench.run()
    assert_same_results(tmp_path, here)
    assert len(cluster.sent) == 6 and len(cluster.stored) == 3 and sum("sent again" in line for line in said) == 3
    assert "3 of 3 cells done" in bench.status.view()
    again = InProcess()
    Spread(cells(logs), tmp_path, again, PROTOCOL, workers=1, say=said.append).run()
    assert again.sent == []


def test_cells_that_share_a_program_fill_the_devices(logs: list[str], tmp_path: Path) -> None:
    def tasks(together: int | None, gpus: int) -> list[int]:
        cluster = InProcess(lost=range(100), gpus=gpus)
        Spread(cells(logs), tmp_path, cluster, PROTOCOL, together=together, say=lambda line: None).run()
        return [len(stored) for _, stored in cluster.sent]

    assert [sorted(set(tasks(*how))) for how in ((None, 0), (None, 2), (None, 1), (2, 0))] == [[1], [1, 2], [3], [1, 2]]


@pytest.mark.slow
def test_packed_cells_have_the_bits_of_cells_packed_here(logs: list[str], tmp_path: Path) -> None:
    Spread(cells(logs), tmp_path / "cluster", InProcess(gpus=2), PROTOCOL, workers=1).run(evaluate=False)
    Bench(cells(logs)[:1], tmp_path / "here", PROTOCOL, workers=1).run(evaluate=False)
    Bench(cells(logs)[1:], tmp_path / "here", PROTOCOL, workers=1, together=2).run(evaluate=False)
    assert_same_results(tmp_path / "cluster", tmp_path / "here")
    # What is left of them, the final episodes, is played where the policies are.
    Spread(cells(logs), tmp_path / "cluster", InProcess(), PROTOCOL, workers=1).run()
    assert all(len(cell.final) == 1 for cell in read_cells(tmp_path / "cluster"))


def test_a_task_that_is_always_lost_is_given_up(logs: list[str], tmp_path: Path) -> None:
    cluster = InProcess(lost=range(100))
    bench = Spread(cells(logs)[:1], tmp_path, cluster, PROTOCOL, say=lambda line: None)
    bench.run()
    assert len(cluster.sent) == spread.ATTEMPTS
    assert list(bench.status.failures.values()) == ["lost 4 times; the last: NodeDied"]
    assert not any((tmp_path / "runs").rglob("*.json"))


def test_of_cells_in_one_task_one_bad_one_is_told_of(logs: list[str], tmp_path: Path) -> None:
    bad = make_log(tmp_path / "bad.npz", 5)
    planned = [*cells(logs[:1]), *cells([bad], environment=None)]
    bench = Spread(planned, tmp_path / "out", InProcess(), PROTOCOL, workers=1, together=2, say=lambda line: None)
    bench.run(evaluate=False)
    assert [cell.data for cell in bench.status.failures] == [bad]
    assert len(read_cells(tmp_path / "out")) == 1


def test_a_cell_that_another_process_trains_is_left_to_it(logs: list[str], tmp_path: Path) -> None:
    bench = Spread(cells(logs)[:1], tmp_path, InProcess(), PROTOCOL, say=lambda line: None)
    with OpenFolder(bench.finder.locate(bench.cells[0]).folder):
        bench.run()
    assert bench.status.state(bench.cells[0]) == "in use" and bench.status.failures == {}


def test_a_node_with_other_code_is_refused(logs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbac.lab.bench.node.code_version", lambda algorithm: {"version": "9", "hash": "other"})
    bench = Spread(cells(logs)[:1], tmp_path, InProcess(), PROTOCOL, say=lambda line: None)
    bench.run()
    (failure,) = bench.status.failures.values()
    assert "its sbac is not the bench's" in failure


def test_the_files_of_an_answer_stay_in_their_folder(logs: list[str], tmp_path: Path) -> None:
    """A node answers with names of files; any other than those of the run are refused, and nothing is written."""
    cluster = InProcess()
    honest = cluster.answer
    cluster.answer = lambda ticket: honest(ticket).replace(b"0/metrics.jsonl", b"0/../../me.json")
    bench = Spread(cells(logs)[:1], tmp_path / "out", cluster, PROTOCOL, workers=1, say=lambda line: None)
    bench.run(evaluate=False)
    (failure,) = bench.status.failures.values()
    assert "is not that of" in failure
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_share_of_a_node_that_a_task_takes() -> None:
    assert task_shape([{"CPU": 0}, {"CPU": 4}, {"CPU": 9}]) == (False, 4, 3)
    assert task_shape([{"CPU": 64, "GPU": 8}, {"CPU": 16, "GPU": 1}, {"CPU": 4}]) == (True, 8, 9)
    with pytest.raises(UserError, match="no node"):
        task_shape([{"CPU": 0}])


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    for words, expected in ((["--address", "auto"], "--on ray"), (["--on", "ray"], "sbac[ray]")):
        assert main(["bench", "--out", str(tmp_path / "out"), *words]) == 2
        assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_real_cluster_with_a_node_killed(logs: list[str], tmp_path: Path) -> None:
    """Three nodes on loopback; one is killed while it trains. Every cell is there once, with the bits made here."""
    pytest.importorskip("ray")
    script = Path(__file__).with_name("ray_nodes.py")
    (tmp_path / "tmp").mkdir()
    settings = {
        **os.environ,
        "SBAC_RESULTS": str(tmp_path / "cluster"),
        "SBAC_LOGS": os.pathsep.join(logs),
        "TMPDIR": str(tmp_path / "tmp"),
        "RAY_worker_niceness": "0",  # else whatever runs beside the test comes first
        "RAY_TMPDIR": tempfile.gettempdir(),  # Ray's sockets need short paths
    }
    began = time.monotonic()
    done = subprocess.run([sys.executable, str(script)], env=settings, capture_output=True, text=True, timeout=400)
    print(done.stdout, done.stderr[-3000:], f"{time.monotonic() - began:.0f} s")
    assert done.returncode == 0
    assert "killed a node" in done.stdout and "sent again" in done.stdout
    from bench.ray_nodes import STEPS

    Bench(cells(logs, STEPS), tmp_path / "here", PROTOCOL, workers=1).run()
    assert_same_results(tmp_path / "cluster", tmp_path / "here")
