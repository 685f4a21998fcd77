"""Damage to files, from a seed: bytes, values of JSON, whole files."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    2**70,
    -(2**70),
    0.5,
    float("inf"),
    float("nan"),
    "",
    "x",
    "../x",
    "/etc/passwd",
    "a:b",
    "\ud800",
    "é" * 300,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    ["x", 1],
)
KINDS = ("value", "value", "value", "drop", "flip", "cut", "zero", "insert", "empty", "folder", "missing", "line")


def places(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value; of a long list, those of its first entries."""
    found = [so_far] if so_far else []
    entries = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return found + [place for key, entry in entries for place in places(entry, (*so_far, key))]


def damage(path: Path, seed: int) -> str:
    """Damages a file; says how."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    data = path.read_bytes()
    if kind in ("missing", "folder"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
    elif kind in ("value", "drop"):
        return f"{kind} {_change_json(path, data, rng, drop=kind == 'drop')}"
    else:
        path.write_bytes(_change_bytes(kind, data, rng))
    return kind


def _change_bytes(kind: str, data: bytes, rng: random.Random) -> bytes:
    at, size = rng.randrange(len(data) or 1), rng.randint(1, 40)
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if data else b"\0"
    if kind == "cut":
        return data[:at]
    if kind == "zero":
        return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]
    if kind == "insert":
        return data[:at] + rng.randbytes(size) + data[at:]
    if kind == "line":
        lines = data.split(b"\n")
        lines.insert(rng.randrange(len(lines)), rng.choice([b"{}", b"[]", b"{", b"[" * 5000, b"NaN", b"\xff", b""]))
        return b"\n".join(lines)
    return b""


def _change_json(path: Path, data: bytes, rng: random.Random, drop: bool) -> str:
    """Changes a value of a JSON file, of a line of one, or of the header of a safetensors file."""
    start, end = 0, len(data)
    if path.suffix == ".safetensors":
        start, end = 8, 8 + int.from_bytes(data[:8], "little")
    elif path.suffix == ".jsonl":
        lines = data.splitlines(keepends=True)
        number = rng.randrange(len(lines))
        start = sum(map(len, lines[:number]))
        end = start + len(lines[number]) - 1
    value = json.loads(data[start:end])
    header: dict[str, str] = (value.get("__metadata__") or {}) if path.suffix == ".safetensors" else {}
    inner = next(iter(header)) if header and rng.random() < 0.7 else None
    target = value if inner is None else json.loads(header[inner])
    place = rng.choice(places(target))
    holder = target
    for step in place[:-1]:
        holder = holder[step]
    if drop:
        del holder[place[-1]]
    else:
        holder[place[-1]] = rng.choice(VALUES)
    if inner is not None:
        header[inner] = json.dumps(target)
    text = json.dumps(value).encode()
    if path.suffix == ".safetensors":
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])
    else:
        path.write_bytes(data[:start] + text + data[end:])
    return ".".join(map(str, place))


def copied(folder: Path, to: Path) -> Path:
    """A fresh copy of a folder."""
    if to.exists():
        shutil.rmtree(to)
    return Path(shutil.copytree(folder, to))
