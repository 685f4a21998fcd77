"""Makes all fifteen datasets and says what is in them: levels, returns, observations beside D4RL's.

python benchmarks/made.py make [--out DIR] [--names ...]   makes what is missing in DIR (default: the data folder)
python benchmarks/made.py tables                           writes the tables into lab-notes/ladders/README.md, between
                                                           its two comments, and draws the replay tiers' histogram

What was measured is kept in benchmarks/made.json, so that tables can be drawn without the data.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sbac.data import Dataset, find_task, load
from sbac.data.locating import data_folder, made_names
from sbac.making.making import identity, is_made, played, write

HERE = Path(__file__).parent
MEASURED = HERE / "made.json"
NOTE = HERE.parent / "lab-notes" / "ladders"
D4RL = HERE / "d4rl_v2_observations.json"
BODIES = ("halfcheetah", "hopper", "walker2d")
TIERS = ("random", "medium", "medium-replay", "medium-expert", "expert")
JOINTS = {
    "halfcheetah": ["back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot"],
    "hopper": ["thigh", "leg", "foot"],
    "walker2d": ["right thigh", "right leg", "right foot", "left thigh", "left leg", "left foot"],
}
EDGES = np.arange(-5, 120, 2.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make")
    making.set_defaults(call=make)
    making.add_argument("--out", type=Path, default=data_folder())
    making.add_argument("--names", nargs="+", default=[f"{body}-{tier}-made" for body in BODIES for tier in TIERS])
    making.add_argument("--workers", type=int)
    drawing = commands.add_parser("tables")
    drawing.set_defaults(call=tables)
    options = parser.parse_args()
    options.call(options)


def make(options: argparse.Namespace) -> None:
    identities = {name: identity(name, None, 0) for name in options.names}
    known: dict[str, Any] = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    missing = [name for name, own in identities.items() if not is_made(options.out / f"{name}.npz", own)]
    for name in set(identities) - set(missing) - set(known):
        known[name] = measure(load(options.out / f"{name}.npz"))
    for name, columns in played(missing, None, 0, options.workers, None):
        write(options.out / f"{name}.npz", name, identities[name], columns)
        rows: dict[str, Any] = dict(columns)
        known[name] = measure(Dataset(**rows, name=name, kind="made", task=name, environment=None))
        MEASURED.write_text(json.dumps({key: known[key] for key in made_names() if key in known}, indent=None) + "\n")
        print(name, {key: value for key, value in known[name].items() if np.isscalar(value)}, flush=True)


def measure(data: Dataset) -> dict[str, Any]:
    """Numbers of a dataset."""
    assert data.task is not None
    scores = np.array([find_task(data.task).score(value) for value in data.returns])
    steps = np.diff(data.episodes, axis=1)[:, 0]
    return {
        "transitions": len(data),
        "episodes": len(data.episodes),
        "return": round(float(data.returns.mean()), 1),
        "score": round(float(scores.mean()), 1),
        "deviation": round(float(scores.std()), 1),
        "terminals": int(data.terminals.sum()),
        "episodes by score": np.histogram(scores, EDGES)[0].tolist(),
        "steps by score": np.histogram(scores, EDGES, weights=steps)[0].astype(int).tolist(),
        "mean": np.round(data.observations.mean(0, dtype=np.float64), 3).tolist(),
        "std": np.round(data.observations.std(0, dtype=np.float64), 3).tolist(),
    }


def tables(options: argparse.Namespace) -> None:
    known: dict[str, Any] = json.loads(MEASURED.read_text())
    theirs: dict[str, Any] = json.loads(D4RL.read_text())["datasets"]
    lines = [*levels(known), *(line for body in BODIES for line in observations(body, known, theirs))]
    page = NOTE / "README.md"
    before, begin, rest = page.read_text().partition("<!-- made: begin -->\n")
    _, end, after = rest.partition("<!-- made: end -->\n")
    page.write_text(before + begin + "\n".join(lines) + "\n\n" + end + after)
    histogram(known, NOTE / "made-replay-returns.png")


def levels(known: dict[str, Any]) -> Iterator[str]:
    yield "| dataset | transitions | episodes | mean return | normalised score | falls |"
    yield "|---|---|---|---|---|---|"
    for body in BODIES:
        for tier in TIERS:
            if (row := known.get(f"{body}-{tier}-made")) is None:
                continue
            level = f"{row['score']:.1f} ± {row['deviation']:.1f}"
            numbers = [f"{row['transitions']:,}", f"{row['episodes']:,}", f"{row['return']:,.1f}", level]
            yield f"| `{body}-{tier}-made` | {' | '.join(numbers)} | {row['terminals']:,} |"


def observations(body: str, known: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """Means of every feature, and how far apart they are in D4RL's standard deviations."""
    pairs = [(t, known.get(f"{body}-{t}-made"), theirs.get(f"{body}-{t}-v2")) for t in TIERS]
    both = [(tier, ours, other) for tier, ours, other in pairs if ours and other]
    joints = JOINTS[body]
    speeds = [f"{joint} speed" for joint in ("forward", "upward", "pitch", *joints)]
    yield f"\n| {body} | {' | '.join(f'{tier}: made | D4RL' for tier, _, _ in both)} |"
    yield "|---" * (1 + 2 * len(both)) + "|"
    for i, feature in enumerate(["height", "pitch", *joints, *speeds]):
        cells = [f"{ours['mean'][i]:.2f} | {other['mean'][i]:.2f}" for _, ours, other in both]
        yield f"| {feature} | {' | '.join(cells)} |"
    gaps = [np.abs(np.subtract(ours["mean"], other["mean"])) / other["std"] for _, ours, other in both]
    yield f"| mean gap in standard deviations | {' | '.join(f'{gap.mean():.2f} |' for gap in gaps)} |"


def histogram(known: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    axes: Any = figure.subplots(1, len(BODIES))
    width = np.diff(EDGES)
    for axis, body in zip(axes, BODIES, strict=True):
        for tier, colour in (("medium-replay", "tab:blue"), ("medium", "tab:orange")):
            row = known[f"{body}-{tier}-made"]
            share = np.array(row["steps by score"]) / row["transitions"] / width
            axis.stairs(share, EDGES, fill=True, alpha=0.55, color=colour, label=tier)
        axis.set(
            title=f"{body}", xlabel="normalised score of the episode", xlim=(-5, 105), yscale="log", ylim=(1e-4, 1)
        )
    axes[0].set_ylabel("share of the steps, per point of score")
    axes[-1].legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
