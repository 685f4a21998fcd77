"""An attack on files that others may hand over: policies and the records of a run, damaged by their meaning.

    python lab-notes/attack/attack.py --policies 3000 --records 3000 --seed 1

Every case has 3 GiB and two minutes of the processor. It must end with exit code 0, or with 2 and one line; it may
change no other file; and a policy that is read must act with finite numbers inside its bounds. A failure names its
case, and the same seed repeats it. Bytes are damaged by `make torture`, which also has the kills.
"""

import argparse
import collections
import contextlib
import copy
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.exporting.policies import make_policy
from tests.mutations import VALUES, places
from tests.small import make_log
from tests.torture import forked

MEMORY, PATIENCE = 3 * 2**30, 120
TOGETHER = 50
"""Cases of one process."""
NAMES = (
    "\x1b[2J",
    "<script>alert(1)</script>",
    "| a | b |",
    "../../x",
    "\u202eabc",
    "ü" * 200,
    "x\ny",
    "[x](y)",
    "'; rm",
)
STRANGE = (
    *VALUES,
    10**400,
    -(10**400),
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    list(range(1000)),
    [1e308] * 50,
    *NAMES,
    {name: name for name in NAMES[:3]},
)
RAW = (b"1" * 5000, b"[" * 20_000, b'{"a":' * 3000, b"1e400", b"-Infinity", b"NaN", b'"\\ud800"', b"0" * 50, b"--1")
"""What `json.dumps` would not write: it stands in the place of a value."""
MARK = "@here@"


def strange(value: Any, rng: random.Random) -> bytes:
    """A JSON value, one or two places of it replaced, dropped, doubled or renamed."""
    raw = b""
    for _ in range(rng.choice((1, 1, 2))):
        spots = places(value)
        if not spots:
            break
        *way, last = rng.choice(spots)
        holder = value
        for step in way:
            holder = holder[step]
        kind = rng.choice(("value", "value", "value", "raw", "drop", "rename", "repeat"))
        if kind == "drop":
            del holder[last]
        elif kind == "rename" and isinstance(holder, dict):
            holder[rng.choice(NAMES)] = holder.pop(last)
        elif kind == "repeat" and isinstance(holder[last], list):
            holder[last] = holder[last] * rng.choice((0, 2, 100))
        elif kind == "raw":
            holder[last], raw = MARK, rng.choice(RAW)
        else:
            holder[last] = copy.deepcopy(rng.choice(STRANGE))
    return json.dumps(value).encode().replace(json.dumps(MARK).encode(), raw)


# --- Policies ---------------------------------------------------------------------------------------------------------


def strange_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    array = np.array(array, np.float32)
    flat = array.reshape(-1)
    match rng.randrange(9):
        case 0:
            return array[None]
        case 1:
            return array.T.copy()
        case 2:
            return array[..., :-1] if array.ndim else array
        case 3:
            return np.zeros((0, *array.shape[1:]), np.float32)
        case 4:
            return array.astype(rng.choice((np.float64, np.float16, np.int8, np.int64, bool)))
        case 5:
            return array * np.float32(rng.choice((1e38, -1e38, 1e-38, 0.0, -1.0, 1e6)))
        case 6:
            return rng.choice((np.ones((2, 3, 4)), np.zeros(()), np.ones(1), np.ones((1, 10**6)))).astype(np.float32)
        case _:
            if flat.size:
                flat[rng.randrange(flat.size)] = rng.choice((np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -1.0, 1e-45))
            return array


def write_strange_policy(path: Path, rng: random.Random) -> None:
    from sbac.files import pack_arrays
    from sbac.policy import FORMULAS

    kind = rng.choice(sorted(FORMULAS))
    policy = make_policy(
        kind, observations=3, actions=2, hidden=(4, 4), normalise=rng.random() < 0.3, seed=rng.randrange(9)
    )
    policy.config["columns"] = {"observations": ["a [m]", "b", "c"], "actions": ["u", "v"]}
    arrays, about = dict(policy.arrays), {"format": 1, "kind": kind, "config": policy.config}
    text = json.dumps(about).encode()
    if rng.random() < 0.4:
        text = strange(about, rng)
    if rng.random() < 0.7:
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice(sorted(arrays))
            match rng.randrange(8):
                case 0:
                    del arrays[name]
                case 1:
                    arrays[rng.choice(NAMES)] = arrays[name]
                case 2:
                    arrays[name.replace("0", "7").replace("1", "0")] = arrays.pop(name)
                case _:
                    arrays[name] = strange_array(arrays[name], rng)
            if not arrays:
                break
    path.write_bytes(pack_arrays(arrays, {"sbac": text.decode(errors="replace")}))


def read_policy(path: Path, number: int) -> int:
    """Reads a policy, acts with it, draws from it and, now and then, exports it."""
    from sbac import cli
    from sbac.errors import UserError
    from sbac.policy import Policy

    try:
        policy = Policy.load(path)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rng = np.random.default_rng(number)
    mean, std = policy.arrays["scale/observation_mean"], policy.arrays["scale/observation_std"]
    noise = rng.standard_normal((8, policy.observation_size)).astype(np.float32)
    low, high = policy.arrays["scale/action_low"], policy.arrays["scale/action_high"]
    np.seterr(all="ignore")
    given = [mean + std * noise, np.zeros_like(noise), 1e6 * noise, 1e30 * noise]
    for observations in given:
        for act in (policy, policy.sample):
            try:
                actions = act(observations)
            except UserError as error:
                print(f"said: {error}")
                continue
            if not np.isfinite(actions).all():
                print(f"PLAYS AS NAN: {actions.tolist()}")
                return 3
            if ((actions < low) | (actions > high)).any():
                print(f"OUT OF BOUNDS: {actions.tolist()}")
                return 3
    if number % 5:
        return 0
    return cli.main(["export", str(path), "--out", str(path.with_suffix(".onnx"))])


def attack_policy(folder: Path, rng: random.Random, number: int) -> tuple[Path, Callable[[], int]]:
    path = folder / "policy.safetensors"
    write_strange_policy(path, rng)
    return path, lambda: read_policy(path, number)


# --- Records ----------------------------------------------------------------------------------------------------------


def make_run(folder: Path) -> None:
    """A small run that was evaluated, judged and tried, with a bench's cell beside it."""
    from sbac import cli

    make_log(rows=600, episode=50).save(folder / "log.npz")
    words = ["train", str(folder / "log.npz"), "--steps", "40", "--hidden", "8", "--batch-size", "8", "--seeds", "2"]
    words += [
        "--alpha",
        "1",
        "4",
        "--env",
        "Pendulum-v1",
        "--episodes",
        "1",
        "--workers",
        "1",
        "--out",
        str(folder / "run"),
    ]
    assert cli.main(words) == 0
    assert cli.main(["select", str(folder / "run"), "--beside"]) == 0
    assert cli.main(["select", str(folder / "run"), "--try", "4", "--env", "Pendulum-v1"]) == 0
    cells = sorted((Path(__file__).parents[1] / "table" / "cells").rglob("*.json"), key=lambda p: p.stat().st_size)
    (folder / "cell" / "cells" / "x").mkdir(parents=True)
    shutil.copy(cells[0], folder / "cell" / "cells" / "x" / cells[0].name)


def strange_file(path: Path, rng: random.Random) -> None:
    """A record with something strange in one of its values; of JSON lines, in one line."""
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        (name,) = header["__metadata__"]
        header["__metadata__"][name] = strange(json.loads(header["__metadata__"][name]), rng).decode(errors="replace")
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    elif path.suffix == ".jsonl":
        lines = data.splitlines()
        number = rng.randrange(len(lines))
        lines[number] = strange(json.loads(lines[number]), rng)
        path.write_bytes(b"\n".join(lines) + b"\n")
    else:
        path.write_bytes(strange(json.loads(data), rng))


def commands(folder: Path, damaged: Path) -> list[list[str]]:
    """What reads the file."""
    run, page, tables = str(folder / "run"), str(folder / "page.html"), folder / "tables.md"
    if "results" in damaged.parts:
        tables.write_text("<!-- scores -->\n<!-- /scores -->\n")
        return [["report", str(folder / "results"), "--markdown", str(tables)]]
    log = str(folder / "log.npz")
    every = [
        ["report", run, "--out", page],
        ["compare", run, str(folder / "whole")],
        ["export", run, "--out", str(folder / "policy.onnx")],
        ["train", "--resume", "--out", run, "--workers", "1"],
    ]
    if damaged.name in ("selection.json", "clone.safetensors", "config.json", "evaluations.jsonl"):
        every.append(["report", run, "--card", "--data", log, "--out", page])
    if damaged.name in ("trials.jsonl", "selection.json"):
        every.append(["select", run, "--try", "4", "--env", "Pendulum-v1"])
    return every


def attack_record(folder: Path, rng: random.Random, number: int) -> tuple[Path, Callable[[], int]]:
    from sbac import cli

    for whole, damaged in (("whole", "run"), ("cell", "results")):
        shutil.rmtree(folder / damaged, ignore_errors=True)
        shutil.copytree(folder / whole, folder / damaged)
    files = ["config.json"] * 3 + ["metrics.jsonl", "evaluations.jsonl", "selection.json", "selection.json"]
    files += ["trials.jsonl", "clone.safetensors", "checkpoint/state-0.safetensors", "cell", "cell"]
    chosen = rng.choice(files)
    path = next((folder / "results").rglob("*.json")) if chosen == "cell" else folder / "run" / chosen
    strange_file(path, rng)
    dear, cheap = [], []
    for words in commands(folder, path):
        (dear if {"--out", "--try"} & set(words) and words[0] in ("report", "select") else cheap).append(words)
    words = rng.choice(dear if not cheap or (dear and rng.random() < 0.15) else cheap)
    return path, lambda: cli.main(words)


# --- The attack -------------------------------------------------------------------------------------------------------


def contents(folder: Path, but: Path) -> dict[str, bytes]:
    """Every file that no command may change: all but the damaged one, and what the commands write."""
    written = {"page.html", "tables.md", "policy.onnx", "output.txt", "selection.json", "trials.jsonl"}
    written |= {"metrics.jsonl", "evaluations.jsonl"}  # rewritten by --resume, with the same rows
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != but and path.name not in written and path.suffix != ".svg"
    }


def wrong_with(code: int, text: str) -> str:
    """What is wrong with an end; nothing if it is as it should be."""
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    if "Traceback" in text or code not in (0, 2):
        return f"ended with {code}: {' / '.join(text.splitlines()[-3:])[-300:]}"
    if code == 2 and (len(errors) != 1 or not errors[0].isprintable()):
        return f"{len(errors)} lines of error: {text[-200:]!r}"
    if any(ord(letter) < 32 and letter not in "\n\r" for letter in text):
        return f"control characters: {text[-200:]!r}"
    return ""


def cases(name: str, folder: Path, numbers: range, seed: int, prepare: Callable[..., Any]) -> int:
    """In a process with limited memory and time: a line for each case."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    for number in numbers:
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)  # of the processor: other programs may slow this one
        path, work = prepare(folder, random.Random(f"{seed} {name} {number}"), number)
        before, said = contents(folder, path), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = work()
            wrong = wrong_with(code, said.getvalue())
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            code, wrong = 1, f"{type(error).__name__}: {str(error)[:200]!r} at {place.filename}:{place.lineno}"
        if before.items() - contents(folder, path).items():
            wrong = "another file was changed or lost"
        if left := [entry.name for entry in folder.rglob("*.tmp")]:
            wrong = f"left behind: {left}"
        print(f"@{number} {code} {path.name} {wrong}", flush=True)
        if wrong:
            shutil.copy(path, folder.parent / f"{name}-{number}-{path.name}")
    return 0


def attack(name: str, folder: Path, count: int, seed: int, prepare: Callable[..., Any], seconds: float) -> int:
    ends: collections.Counter[str] = collections.Counter()
    failures, began, number = 0, time.monotonic(), 0
    while number < count and time.monotonic() - began < seconds:
        out, last = folder.parent / "output.txt", min(count, number + TOGETHER)
        ended = forked(lambda: cases(name, folder, range(number, last), seed, prepare), out, TOGETHER * PATIENCE)  # noqa: B023
        for line in (line for line in ended.text.splitlines() if line.startswith("@")):
            number, (code, file, *wrong) = int(line[1:].split()[0]) + 1, line.split()[1:]
            ends[code] += 1
            if wrong:
                failures += 1
                print(f"FAILED {name} {number - 1} ({file}): {' '.join(wrong)}", flush=True)
        if number < last:
            failures, number = failures + 1, number + 1
            print(
                f"FAILED {name} {number - 1}: hung, crashed or too large: {ended.code} {ended.text[-300:]}", flush=True
            )
    taken = f"{time.monotonic() - began:.0f} s"
    print(
        f"{name}: {number} of {count}, taken {ends['0']}, refused {ends['2']}, failed {failures}, {taken}",
        flush=True,
    )
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=int, default=3000)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="that each of the two may take")
    args = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    folder = Path(tempfile.mkdtemp(prefix="sbac-attack-"))
    failures = 0
    if args.policies:
        import onnx  # noqa: F401 (imported once, for all the processes that are forked)
        import onnxruntime  # noqa: F401

        import sbac.exporting

        (folder / "policies").mkdir()
        failures += attack("policies", folder / "policies", args.policies, args.seed, attack_policy, args.seconds)
    if args.records:
        made = folder / "records"
        made.mkdir()
        text = folder / "made.txt"
        ended = forked(lambda: make_run(made) or 0, text, TOGETHER * PATIENCE)
        assert ended.code == 0, ended.text
        (made / "run").rename(made / "whole")
        import sbac.lab.report.markdown
        import sbac.report.card
        import sbac.training.train  # noqa: F401
        from sbac.cli import report  # noqa: F401

        failures += attack("records", made, args.records, args.seed, attack_record, args.seconds)
    if not failures:
        shutil.rmtree(folder)
    else:
        print(f"the damaged files are in {folder}")
    return 1 if failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
