"""The picture of a policy card, as SVG: the log's returns, the estimate and, where it is known, the truth."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 260, 20, 20, 16, 44
BINS = 40


def returns_picture(
    logged: NDArray[np.float64], value: float, interval: tuple[float, float] | None, truth: Sequence[float] | None
) -> str:
    """A histogram of the log's returns with the estimate above it."""
    points = [value, *(interval or ()), *(truth or ()), *np.percentile(logged, [0, 100]).tolist()]
    low, high = min(points), max(points)
    room = 0.04 * (high - low) or 1.0
    low, high = low - room, high + room

    def x(number: float) -> float:
        return LEFT + (number - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    base, top = HEIGHT - BOTTOM, TOP + 60
    counts, edges = np.histogram(logged, BINS, (low, high))
    bars = "".join(
        f'<rect x="{x(left):.1f}" y="{base - count / max(counts.max(), 1) * (base - top):.1f}" '
        f'width="{max(x(right) - x(left) - 1, 0.5):.1f}" height="{count / max(counts.max(), 1) * (base - top):.1f}"/>'
        for left, right, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        if count
    )
    marks = [_mark(x(float(np.mean(logged))), base, top - 4, "--muted", "the log's mean", TOP + 54)]
    if interval is not None:
        marks.append(
            f'<line x1="{x(interval[0]):.1f}" x2="{x(interval[1]):.1f}" y1="{TOP + 34}" y2="{TOP + 34}" '
            'stroke="var(--c0)" stroke-width="6" stroke-linecap="round" opacity=".45"/>'
        )
    marks.append(_mark(x(value), base, TOP + 26, "--c0", "estimate", TOP + 18))
    if truth:
        marks.append(_mark(x(float(np.mean(truth))), base, TOP + 8, "--c2", "in the environment", TOP + 4))
        marks += [
            f'<circle cx="{x(number):.1f}" cy="{base + 8}" r="3" fill="var(--c2)" opacity=".7"/>' for number in truth
        ]
    ticks = "".join(
        f'<text x="{x(tick):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{tick:.3g}</text>'
        for tick in np.linspace(low + room, high - room, 5).tolist()
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Discounted returns" font-size="13" '
        f'font-family="system-ui, sans-serif" fill="var(--ink)"><g fill="var(--muted)" opacity=".45">{bars}</g>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}" stroke="var(--line)"/>'
        f'{"".join(marks)}<g fill="var(--muted)">{ticks}</g></svg>'
    )


def _mark(x: float, base: float, top: float, colour: str, text: str, text_y: float) -> str:
    """A line with its name beside it, on the side that has room."""
    right = x < WIDTH / 2
    at, anchor = (x + 6, "start") if right else (x - 6, "end")
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{top}" stroke="var({colour})" stroke-width="2"/>'
        f'<text x="{at:.1f}" y="{text_y + 6:.1f}" text-anchor="{anchor}" style="fill:var({colour})">{text}</text>'
    )
