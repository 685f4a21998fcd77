"""Pictures by matplotlib, drawn without a screen. Its types are known in part only: they stop here."""

import importlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figure = Any
Axes = Any
COLOURS = ("#0b6bcb", "#d9480f", "#2b8a3e", "#862e9c", "#5f3dc4", "#c2255c", "#087f5b", "#495057")


def new_figure(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes, in rows of at most `columns`, each of a width and height in inches."""
    across = min(columns, count)
    down = -(-count // across)
    size = (width * across, height * down)
    figure, grid = _pyplot().subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def save_svg(figure: Figure, path: Path) -> None:
    """The same picture is the same bytes: no date, no random names."""
    with _pyplot().rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        _save(figure, path, format="svg", metadata={"Date": None, "Creator": None})


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that a notebook shows."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png


def png_bytes(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    _pyplot().close(figure)
    return stream.getvalue()


def save_png(figure: Figure, path: Path) -> None:
    _save(figure, path, dpi=150)


def _save(figure: Figure, path: Path, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, **options)
    _pyplot().close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")
