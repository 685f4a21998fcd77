"""What one step costs by XLA's own count: a guard against slowing down that needs no clock.

    python benchmarks/cost.py            # measures, and compares with the committed figures
    python benchmarks/cost.py --renew    # writes the figures of this machine to benchmarks/cost.json

For a few methods, five runs of Hopper's size with the `quick` networks are compiled for the CPU. The script counts the
floating-point operations and bytes of the whole compiled program (a loop's body counts once) and the operations that
are launched one by one in the step's loop, all divided by the steps that the loop's body writes out. The counts depend
on the architecture and on jax's minor version, so benchmarks/cost.json holds figures for each pair; `--renew` replaces
those of the present pair and keeps the others.
"""

import argparse
import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parent))
from speed import made_up, program

COMMITTED = Path(__file__).with_name("cost.json")
METHODS = ("sbac", "td3-bc", "iql")
OPTIONS: dict[str, dict[str, Any]] = {"sbac": {"critic": "mu"}}
"""What differs from the preset."""
TOLERANCE = 0.05
RUNS = 5
# What costs nothing by itself: names for values that are there already.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota"}


def measure(method: str) -> dict[str, dict[str, float]]:
    """Phase by phase: flops, bytes accessed, and operations in the body of the step's loop."""
    prog = program(made_up(2_000), method, RUNS, OPTIONS.get(method, {}), preset="quick")
    costs: dict[str, dict[str, float]] = {}
    finals: dict[str, Any] = {}
    for index, phase in enumerate(prog.algorithm.phases):
        block = prog.block(index, 4)
        compiled, steps = prog.compiled(index, finals, block), prog.unrolled(index, block)
        analysis, text = compiled.cost_analysis(), compiled.as_text()
        assert analysis is not None and text is not None
        costs[phase.name] = {
            "flops": analysis["flops"] / steps,
            "bytes": analysis["bytes accessed"] / steps,
            "operations": operations(text) / steps,
        }
        finals[phase.name] = prog.shape(index, finals)
    return costs


def operations(text: str) -> int:
    """Instructions of the largest computation that a while loop runs, names and constants left out."""
    bodies = set(re.findall(r"body=(%?[\w.\-]+)", text))
    counts = [0]
    for computation in re.split(r"\n(?=\S)", text):
        name = computation.split(" ", 1)[0]
        if name in bodies:
            found = re.findall(r"^\s+(?:ROOT )?\S+ = .*?([a-z][a-z\-]*)\(", computation, re.MULTILINE)
            counts.append(sum(kind not in FREE for kind in found))
    return max(counts)


def place() -> str:
    """What the counts depend on: the architecture and jax's minor version, as a key of cost.json."""
    return f"{platform.machine()}, jax {'.'.join(jax.__version__.split('.')[:2])}"


def read_committed(path: Path = COMMITTED) -> dict[str, dict[str, Any]]:
    """Place, method, phase, figure."""
    return json.loads(path.read_text())


def exceeded(measured: Mapping[str, Any], committed: Mapping[str, Any]) -> list[str]:
    """A line for each figure that is further from the committed one than the tolerance, above or below."""
    return [
        f"{method} {phase} {name}: {value:,.0f}, committed {committed[method][phase][name]:,.0f}"
        for method, phases in measured.items()
        for phase, figures in phases.items()
        for name, value in figures.items()
        if abs(value / committed[method][phase][name] - 1) > TOLERANCE
    ]


def main(arguments: Sequence[str] | None = None, path: Path = COMMITTED) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="write the figures of this architecture and jax version")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")
    measured = {method: measure(method) for method in options.methods}
    for method, phases in measured.items():
        for phase, figures in phases.items():
            print(f"{method:12} {phase:10} " + "  ".join(f"{name} {value:12,.0f}" for name, value in figures.items()))
    committed = read_committed(path)
    if options.renew:
        renewed = committed | {place(): committed.get(place(), {}) | measured}
        path.write_text(json.dumps(dict(sorted(renewed.items())), indent=1) + "\n")
    elif place() in committed:
        print("\n".join(exceeded(measured, committed[place()])) or f"all as committed for {place()}")
    else:
        print(f"no figures for {place()} in {path.name}; --renew writes them")


if __name__ == "__main__":
    main()
