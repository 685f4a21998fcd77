"""A Ray cluster on loopback: a head without cores and three nodes, one of which is killed while it trains.

Run by the test of the Ray backend, in a process of its own: SBAC_LOGS names the datasets, SBAC_RESULTS the folder,
TMPDIR a folder of this run alone.
"""

import importlib
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

STEPS = 5_000


def kill_one_that_trains(cluster: Any, nodes: list[Any]) -> None:
    """Waits until a node has logged metrics, when all have a task, then kills one: no farewell, nothing handed over."""
    while not any(Path(tempfile.gettempdir()).rglob("metrics.jsonl")):
        time.sleep(0.1)
    cluster.remove_node(nodes[0], allow_graceful=False)
    print("killed a node", flush=True)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    Cluster = importlib.import_module("ray.cluster_utils").Cluster
    from tests.lab.bench.cluster import make_bench, small_cells

    from sbac.lab.bench.final import say_at_once
    from sbac.lab.bench.ray_cluster import connected
    from sbac.lab.bench.runner import run_bench
    from sbac.lab.bench.spread import Nodes

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    cluster.wait_for_nodes()
    try:
        with connected(cluster.address) as connection:
            logs, results = os.environ["SBAC_LOGS"].split(os.pathsep), Path(os.environ["SBAC_RESULTS"])
            bench = make_bench(small_cells(logs, length=[STEPS]), results, say=say_at_once)
            threading.Thread(target=kill_one_that_trains, args=(cluster, nodes), daemon=True).start()
            print(run_bench(bench, Nodes(connection)).view())
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
