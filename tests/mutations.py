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
WORDS = (b"-1", b"0", b"1e999", b"NaN", b"null", b"9" * 30, b'"', b"{", b"[]", b"true", b"\xff\xfe")
LINES = (b"{}", b"[]", b"{", b"[" * 5000, b"NaN", b"\xff", b"")
WITH_JSON = (".json", ".jsonl", ".safetensors")
IN_JSON = ("value", "value", "value", "drop")
IN_BYTES = ("flip", "cut", "delete", "double", "zero", "noise", "insert", "word", "line", "empty")
OF_THE_FILE = ("folder", "missing")


def places(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value; of a long list, those of its first entries."""
    here = [so_far] if so_far else []
    entries = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return here + [place for key, entry in entries for place in places(entry, (*so_far, key))]


def damage(path: Path, seed: int | str) -> str:
    """Damages a file; says how."""
    rng = random.Random(seed)
    kind = rng.choice((IN_JSON if path.suffix in WITH_JSON else ()) + IN_BYTES + OF_THE_FILE)
    data = path.read_bytes()
    if kind in OF_THE_FILE:
        path.unlink()
        if kind == "folder":
            path.mkdir()
    elif kind in IN_JSON:
        return f"{kind} {_change_json(path, data, rng, drop=kind == 'drop')}"
    else:
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = _change_bytes(kind, data, rng)
        path.write_bytes(data)
    return kind


def restore(path: Path, data: bytes) -> None:
    """The file as it was, whatever a damage has left in its place."""
    if path.is_dir():
        path.rmdir()
    path.write_bytes(data)


def _change_bytes(kind: str, data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.randbytes(1)
    at, size = rng.randrange(len(data)), rng.randint(1, 64)
    before, stretch, after = data[:at], data[at : at + size], data[at + size :]
    match kind:
        case "flip":
            return before + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case "cut":
            return before
        case "delete":
            return before + after
        case "double":
            return before + stretch + stretch + after
        case "zero":
            return before + bytes(len(stretch)) + after
        case "noise":
            return before + rng.randbytes(len(stretch)) + after
        case "insert":
            return before + rng.randbytes(size) + stretch + after
        case "word":
            return before + rng.choice(WORDS) + data[at + rng.randrange(4) :]
        case "line":
            lines = data.split(b"\n")
            lines.insert(rng.randrange(len(lines)), rng.choice(LINES))
            return b"\n".join(lines)
        case _:
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
