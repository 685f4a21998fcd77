"""Streaming against a log in memory: steps per second, host memory, and the learning curve, in one run.

Makes a Parquet file of at least the size asked for (noise does not compress) and a small log that fits in memory.
Trains the same method for the same steps on the small log in memory, on the small log streamed through a ring of an
eighth of it, on the large log streamed, and on the small log in memory again, each in a process of its own. Prints
every figure as it comes, then tables in Markdown: rates and memory, and the losses side by side. Rates are those of
the second half of the steps; the pass over the log comes once and is printed apart. Deletes what it made; with --keep
the files stay in the folder and the next run takes them.

    python benchmarks/streaming.py --gigabytes 10 --steps 200000 --out stream.json
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

OBS, ACT, GROUP, EPISODE = 17, 6, 2**15, 1000
ROW_BYTES = 4 * (OBS + ACT + 1) + 2
SMALL_ROWS = 2**20
CASES = {
    "small, in memory": ("small", "loaded"),
    "small, streamed": ("small", "streamed"),
    "large, streamed": ("large", "streamed"),
    "small, in memory, again": ("small", "loaded"),
}
PARTS = 10
"""Stretches of steps whose losses are averaged for the comparison of the curves."""


def write_log(path: Path, rows: int, seed: int) -> None:
    """Episodes in which the action that pays follows from the state; written in row groups, never in memory."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    matrix = (np.random.default_rng(0).normal(size=(OBS, ACT)) / np.sqrt(OBS)).astype(np.float32)
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

    def group(start: int) -> Any:
        rng = np.random.default_rng([seed, start])
        count = min(GROUP, rows - start)
        states = rng.standard_normal((count, OBS), np.float32)
        best = np.tanh(states @ matrix)
        actions = np.clip(best + 0.5 * rng.standard_normal(best.shape, np.float32), -1, 1)
        rewards = -((actions - best) ** 2).mean(1)
        last = (np.arange(start, start + count) + 1) % EPISODE == 0
        columns = [
            pa.FixedSizeListArray.from_arrays(pa.array(states.ravel()), OBS),
            pa.FixedSizeListArray.from_arrays(pa.array(actions.ravel()), ACT),
            pa.array(rewards),
            pa.array(np.zeros(count, bool)),
            pa.array(last),
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    starts = list(range(0, rows, GROUP))
    at_once = 2 * (os.cpu_count() or 1)
    with (
        parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer,
        ThreadPoolExecutor() as pool,
    ):
        for at in range(0, len(starts), at_once):
            for table in pool.map(group, starts[at : at + at_once]):
                writer.write_table(table)


def peak_mib() -> int:
    """The most memory that this process has held. (ru_maxrss also counts its parent's, until it was started.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def ring_rows(path: Path) -> int:
    """What a streamed log holds on the device: the default, or an eighth of the small log."""
    from sbac.data import streaming

    return SMALL_ROWS // 8 if path.stem == "small" else streaming.RING_ROWS


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
    data = sbac.stream(path, ring_rows=ring_rows(path)) if streamed else sbac.load(path)
    episodes = len(data.returns)  # a stream reads the whole log for them
    read = time.monotonic() - began
    run = sbac.train(data, algorithm, steps=steps, evaluate=False, progress=False, **options)
    half = [entry for entry in times if entry[0] >= steps // 2]
    (first, start), (last, end) = half[0], half[-1]
    final = max(row["phase"] for row in run.metrics)
    rows = [row for row in run.metrics if row["phase"] == final and row["seed"] == run.metrics[0]["seed"]]
    loss = next(name for name in rows[0] if name.endswith("loss"))  # every method's last phase logs one, or more
    return {
        "rows": len(data),
        "episodes": episodes,
        "ring_rows": ring_rows(path) if streamed else None,
        "seconds_before_training": round(read, 1),
        "steps_per_second": round((last - first) / (end - start), 1),
        "peak_mib": peak_mib(),
        "curve": [(row["step"], row[loss]) for row in rows],
    }


def parts(curve: list[tuple[int, float]]) -> list[tuple[int, float, float]]:
    """The curve in PARTS stretches: the last step, the mean loss and its standard error from the logged batches."""
    found: list[tuple[int, float, float]] = []
    for stretch in np.array_split(np.array(curve), PARTS):
        losses = stretch[:, 1]
        error = losses.std(ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else float("nan")
        found.append((int(stretch[-1, 0]), float(losses.mean()), float(error)))
    return found


def tables(figures: dict[str, Any]) -> str:
    """Markdown: rates and memory, then the curves side by side."""
    lines = [
        "| | rows | ring, rows | steps per second | peak memory, MiB | seconds before training |",
        "|---|" + "---|" * 5,
    ]
    for name in CASES:
        one = figures[name]
        ring = f"{one['ring_rows']:,}" if one["ring_rows"] else "all"
        lines.append(
            f"| {name} | {one['rows']:,} | {ring} | {one['steps_per_second']:,.0f} | {one['peak_mib']:,} |"
            f" {one['seconds_before_training']} |"
        )
    lines += ["", "| loss up to step | " + " | ".join(CASES) + " |", "|---|" + "---|" * len(CASES)]
    for row in zip(*(parts(figures[name]["curve"]) for name in CASES), strict=True):
        lines.append(f"| {row[0][0]:,} | " + " | ".join(f"{mean:.4f} ± {error:.4f}" for _, mean, error in row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--algorithm", default="bc")
    parser.add_argument("--set", nargs="*", default=["batch_size=256", "seeds=1"], metavar="FIELD=VALUE")
    parser.add_argument("--folder", help="where the files are made (default: a temporary folder)")
    parser.add_argument(
        "--keep", action="store_true", help="leave the files in --folder, and take those that are there"
    )
    parser.add_argument("--write-only", action="store_true", help="write the files and stop; with --keep")
    parser.add_argument("--out", help="a JSON file for the figures")
    parser.add_argument("--one", nargs=2, metavar=("FILE", "HOW"), help="internal: one training")
    args = parser.parse_args()
    options = {name: json.loads(value) for name, value in (word.split("=", 1) for word in args.set)}
    if args.one:
        print(json.dumps(measure(Path(args.one[0]), args.one[1] == "streamed", args.steps, options, args.algorithm)))
        return
    if (args.keep or args.write_only) and not (args.keep and args.folder):
        parser.error("--keep needs --folder, and --write-only needs --keep")
    with contextlib.ExitStack() as made:
        folder = args.folder
        if not args.keep:
            folder = made.enter_context(tempfile.TemporaryDirectory(prefix="sbac-streaming-", dir=args.folder))
        small, large = Path(folder) / "small.parquet", Path(folder) / "large.parquet"
        if not large.exists():
            write_log(small, SMALL_ROWS, 1)
            began = time.monotonic()
            part = large.with_suffix(".part")
            write_log(part, int(args.gigabytes * 1e9 / ROW_BYTES) + 1, 2)
            part.rename(large)
            print(f"{large.stat().st_size / 1e9:.2f} GB written in {time.monotonic() - began:.0f} s", flush=True)
        if args.write_only:
            return
        figures: dict[str, Any] = {"large_bytes": large.stat().st_size}
        for name, (size, how) in CASES.items():
            command = [sys.executable, __file__, "--one", str(Path(folder) / f"{size}.parquet"), how]
            command += ["--steps", str(args.steps), "--algorithm", args.algorithm, "--set", *args.set]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures[name] = json.loads(done.stdout.splitlines()[-1])
            print(f"{name}: { ({key: value for key, value in figures[name].items() if key != 'curve'}) }", flush=True)
    memory = [figures[name]["steps_per_second"] for name in CASES if "in memory" in name]
    ratio = figures["large, streamed"]["steps_per_second"] / max(memory)
    above = figures["large, streamed"]["peak_mib"] - min(figures[name]["peak_mib"] for name in CASES)
    figures |= {"ratio": round(ratio, 3), "host_mib_above_small": above}
    print("\n" + tables(figures) + "\n")
    print(f"ratio {ratio:.2f} (aim: 0.80), host memory {above} MiB above the smallest (aim: 2,048)")
    if args.out:
        Path(args.out).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
