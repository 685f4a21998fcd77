"""Streaming against a log in memory: steps per second, host memory, and the learning curve, in one run.

Makes a Parquet file of at least the size asked for (noise does not compress), trains the same method for the same steps
on a log that fits in memory, on the same log streamed, and on the large one streamed, each in a process of its own,
and prints a table. Rates leave out the pass over the log, the compilation and the first fill of the ring, which are
printed apart: they come once. Deletes what it made.

    python benchmarks/streaming.py --gigabytes 10 --steps 200000 --out stream.json
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

OBS, ACT, GROUP, EPISODE = 17, 6, 2**15, 1000
ROW_BYTES = 4 * (OBS + ACT + 1) + 2
SMALL_ROWS = 2**20
LOGS = 20


def write_log(path: Path, rows: int, seed: int) -> None:
    """Episodes in which the action that pays follows from the state; written in row groups, never in memory."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rng = np.random.default_rng(seed)
    matrix = np.random.default_rng(0).normal(size=(OBS, ACT)) / np.sqrt(OBS)
    floats = pa.float32()
    schema = pa.schema(
        [
            ("observations", pa.list_(floats, OBS)),
            ("actions", pa.list_(floats, ACT)),
            ("rewards", floats),
            ("terminals", pa.bool_()),
            ("timeouts", pa.bool_()),
        ]
    )
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, GROUP):
            count = min(GROUP, rows - start)
            states = rng.normal(size=(count, OBS)).astype(np.float32)
            best = np.tanh(states @ matrix)
            actions = np.clip(best + rng.normal(scale=0.5, size=best.shape), -1, 1).astype(np.float32)
            rewards = -((actions - best) ** 2).mean(1).astype(np.float32)
            last = (np.arange(start, start + count) + 1) % EPISODE == 0
            columns = [
                pa.FixedSizeListArray.from_arrays(pa.array(states.ravel()), OBS),
                pa.FixedSizeListArray.from_arrays(pa.array(actions.ravel()), ACT),
                pa.array(rewards),
                pa.array(np.zeros(count, bool)),
                pa.array(last),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def measure(path: Path, streamed: bool, steps: int, options: dict[str, Any], algorithm: str) -> dict[str, Any]:
    """One training, in this process. The rate is that of the second half of its steps."""
    import sbac
    from sbac.training import loop

    times: list[tuple[int, float]] = []
    real = loop.Writer.log

    def log(self: Any, phase: int, step: int, metrics: Any) -> None:
        times.append((step, time.monotonic()))
        real(self, phase, step, metrics)

    loop.Writer.log = log  # type: ignore[method-assign]
    began = time.monotonic()
    data = sbac.stream(path) if streamed else sbac.load(path)
    episodes = len(data.returns)  # a stream reads the whole log for them
    read = time.monotonic() - began
    run = sbac.train(data, algorithm, steps=steps, evaluate=False, progress=False, **options)
    half = [entry for entry in times if entry[0] >= steps // 2]
    (first, start), (last, end) = half[0], half[-1]
    losses = [(row["step"], row.get("policy_loss", row.get("loss"))) for row in run.metrics if row["seed"] == 0]
    return {
        "rows": len(data),
        "episodes": episodes,
        "seconds_before_training": round(read, 1),
        "steps_per_second": round((last - first) / (end - start), 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "curve": losses[:: max(1, len(losses) // LOGS)],
        "metrics": sorted(run.metrics[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--algorithm", default="bc")
    parser.add_argument("--set", nargs="*", default=["batch_size=256", "seeds=1"], metavar="FIELD=VALUE")
    parser.add_argument("--folder", help="where the files are made (default: a temporary folder)")
    parser.add_argument("--out", help="a JSON file for the figures")
    parser.add_argument("--one", nargs=2, metavar=("FILE", "HOW"), help="internal: one training")
    args = parser.parse_args()
    options = {name: json.loads(value) for name, value in (word.split("=", 1) for word in args.set)}
    if args.one:
        print(json.dumps(measure(Path(args.one[0]), args.one[1] == "streamed", args.steps, options, args.algorithm)))
        return
    with tempfile.TemporaryDirectory(prefix="sbac-streaming-", dir=args.folder) as folder:
        small, large = Path(folder) / "small.parquet", Path(folder) / "large.parquet"
        write_log(small, SMALL_ROWS, 1)
        began = time.monotonic()
        write_log(large, int(args.gigabytes * 1e9 / ROW_BYTES) + 1, 2)
        print(f"{large.stat().st_size / 1e9:.2f} GB written in {time.monotonic() - began:.0f} s", flush=True)
        figures: dict[str, Any] = {"large_bytes": large.stat().st_size}
        for name, path, how in (
            ("small, in memory", small, "loaded"),
            ("small, streamed", small, "streamed"),
            ("large, streamed", large, "streamed"),
            ("small, in memory, again", small, "loaded"),
        ):
            command = [sys.executable, __file__, "--one", str(path), how, "--steps", str(args.steps)]
            command += ["--algorithm", args.algorithm, "--set", *args.set]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures[name] = json.loads(done.stdout.splitlines()[-1])
            shown = {key: value for key, value in figures[name].items() if key not in ("curve", "metrics")}
            print(f"{name}: {shown}", flush=True)
    memory = [figures[name]["steps_per_second"] for name in ("small, in memory", "small, in memory, again")]
    ratio = figures["large, streamed"]["steps_per_second"] / max(memory)
    above = figures["large, streamed"]["peak_mib"] - min(figures[n]["peak_mib"] for n in figures if n != "large_bytes")
    figures |= {"ratio": round(ratio, 3), "host_mib_above_small": above}
    print(f"ratio {ratio:.2f} (aim: 0.80), host memory {above} MiB above the smallest (aim: 2,048)")
    if args.out:
        Path(args.out).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
