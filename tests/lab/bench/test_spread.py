"""A bench on a cluster: every cell once, with the bits of a bench on this machine, whatever is lost on the way."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from tests.lab.bench.cluster import InProcess, make_bench, save_log, small_cells
from tests.lab.bench.ray_nodes import STEPS

from sbac.cli import main
from sbac.data import load
from sbac.errors import UserError
from sbac.lab.bench import finding
from sbac.lab.bench.parcels import pack_dataset, unpack_dataset
from sbac.lab.bench.ray_cluster import task_shape
from sbac.lab.bench.runner import run_bench
from sbac.lab.bench.spread import ATTEMPTS, Nodes
from sbac.lab.cells import read_cells

VARY = ("machine", "date", "seconds")
"""What two trainings of the same cell differ in."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    return [save_log(folder / f"log{i}.npz", rows=300, seed=i) for i in range(3)]


@pytest.fixture(scope="module")
def here(logs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same cells, made by a bench on this machine, one by one."""
    results = tmp_path_factory.mktemp("here")
    run_bench(make_bench(small_cells(logs), results))
    return results


def assert_same_results(ours: Path, theirs: Path) -> None:
    """The same cells with the same numbers, and the same policies, byte by byte."""

    def measured(results: Path) -> list[dict[str, Any]]:
        cells = [json.loads(path.read_bytes()) for path in sorted((results / "cells").rglob("*.json"))]
        return [{name: value for name, value in cell.items() if name not in VARY} for cell in cells]

    def kept(results: Path) -> dict[str, bytes]:
        runs = results / "runs"
        files = {str(path.relative_to(runs)): path.read_bytes() for path in runs.rglob("*") if path.is_file()}
        for name in (name for name in files if name.endswith("config.json")):
            config = json.loads(files[name])
            for elsewhere in ("paths", "reading"):  # where this machine has the log; a node is sent its rows
                config.pop(elsewhere, None)
            files[name] = json.dumps(config).encode()
        return files

    assert measured(ours) == measured(theirs)
    mine, other = kept(ours), kept(theirs)
    assert mine.keys() == other.keys() and len(mine) > 0
    for name in (name for name in mine if name.endswith((".safetensors", "config.json"))):
        assert mine[name] == other[name], name


@pytest.mark.parametrize("stores_next", [False, True])
def test_a_dataset_arrives_as_it_was(tmp_path: Path, stores_next: bool) -> None:
    data = load(save_log(tmp_path / "log.npz", stores_next=stores_next))
    back, identity = unpack_dataset(pack_dataset(data, "it"))
    assert identity == "it"
    assert back.hash == data.hash and (back.name, back.kind, back.task) == (data.name, data.kind, data.task)


def test_every_cell_once_with_the_same_bits_though_tasks_are_lost(logs: list[str], here: Path, tmp_path: Path) -> None:
    said: list[str] = []
    cluster = InProcess(lost=[0, 2, 3])
    status = run_bench(make_bench(small_cells(logs), tmp_path, say=said.append), Nodes(cluster))
    assert_same_results(tmp_path, here)
    assert len(cluster.sent) == 6 and len(cluster.stored) == 3 and sum("sent again" in line for line in said) == 3
    assert said[0] == f"[1/3] {logs[0]} bc: 20 steps, sent" and sum("1 cell from" in line for line in said) == 3
    assert "3 of 3 cells done" in status.view()
    again = InProcess()
    run_bench(make_bench(small_cells(logs), tmp_path), Nodes(again))
    assert again.sent == []


def test_cells_that_share_a_program_fill_the_devices() -> None:
    assert [Nodes(InProcess(gpus=gpus)).at_once(3) for gpus in (0, 1, 2, 4)] == [1, 3, 2, 1]


@pytest.mark.slow
def test_packed_cells_have_the_bits_of_cells_packed_here(logs: list[str], tmp_path: Path) -> None:
    wanted = small_cells(logs)
    run_bench(make_bench(wanted, tmp_path / "cluster", evaluate=False), Nodes(InProcess(gpus=2)))
    run_bench(make_bench(wanted, tmp_path / "here", together=2, evaluate=False))
    assert_same_results(tmp_path / "cluster", tmp_path / "here")
    # What is left of them, the final episodes, is played where the policies are.
    run_bench(make_bench(wanted, tmp_path / "cluster"), Nodes(InProcess()))
    assert all(len(cell.final) == 1 for cell in read_cells(tmp_path / "cluster"))


def test_a_task_that_is_always_lost_is_given_up(logs: list[str], tmp_path: Path) -> None:
    cluster = InProcess(lost=range(100))
    status = run_bench(make_bench(small_cells(logs[:1]), tmp_path), Nodes(cluster))
    assert len(cluster.sent) == ATTEMPTS
    assert list(status.failures.values()) == ["lost 4 times; the last: NodeDied"]
    assert not any((tmp_path / "runs").rglob("*.json"))


def test_a_node_with_other_code_is_refused(logs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = InProcess()
    honest = cluster.answer

    def answer(ticket: Any) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(finding, "code_version", lambda algorithm: {"version": "9", "hash": "other"})
            return honest(ticket)

    cluster.answer = answer
    status = run_bench(make_bench(small_cells(logs[:1]), tmp_path), Nodes(cluster))
    (failure,) = status.failures.values()
    assert "its sbac is not the bench's" in failure


def test_the_files_of_an_answer_stay_in_their_folder(logs: list[str], tmp_path: Path) -> None:
    """A node answers with names of files; without those of the run it is refused, and nothing is written."""
    cluster = InProcess()
    honest = cluster.answer
    cluster.answer = lambda ticket: honest(ticket).replace(b"/metrics.jsonl", b"/../../me.json")
    status = run_bench(make_bench(small_cells(logs[:1]), tmp_path / "out", evaluate=False), Nodes(cluster))
    (failure,) = status.failures.values()
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
    run_bench(make_bench(small_cells(logs, length=[STEPS]), tmp_path / "here"))
    assert_same_results(tmp_path / "cluster", tmp_path / "here")
