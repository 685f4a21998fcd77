"""What `sbac learn` does in the minutes it has: one row of a table, picked once and written down.

The costs in the table are those of two quiet cores and of one GPU. A short probe says how much slower or faster this
machine is, and with that the largest row is taken that fits. After the first candidate, whose real cost is known
then, the last candidates are dropped as far as the rest would not fit. Both are decided once, and kept after a kill.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sbac import files
from sbac.errors import UserError, finite
from sbac.records import Settings, as_json, parse
from sbac.text import counted, phases_text
from sbac.trust.evidence import EFFORTS, Effort

PLAN_FILE, PLAN_FORMAT = "plan.json", 1
START = 10.0
"""Seconds, on the machines of the table, for what is neither training nor judging."""
DEFAULT_MINUTES = {"cpu": 15.0, "gpu": 10.0}
LOG_ALONE = 0.5
"""Of the judge's time: what does not go by the number of policies."""
FEWEST_ROWS = 1_000
"""Of a log that more than a clone is learned from."""
LONG = 200_000
"""Rows of a log that deserves longer trainings: in 20,000 steps on two cores a row is seen a dozen times at most."""


@dataclass(frozen=True)
class LearnCandidate:
    """Policies of one run: one for each setting and seed."""

    name: str
    """Of its folder."""
    settings: list[Settings]
    seconds: float
    """That it takes, on the machines of the table, compiling included."""
    starts_from: str | None = None
    """The candidate whose first phase it takes over, which would be the same."""
    algorithm: str = "sbac"


@dataclass(frozen=True)
class PlanRow:
    """A row of the table: for which logs and devices it is, what is trained, and what that costs."""

    name: str
    device: str
    preset: str
    """Which gives the widths."""
    steps: list[int]
    seeds: int
    candidates: list[LearnCandidate]
    """The first is always trained; of the others the last is the first to be dropped."""
    effort: Effort
    """Of the judge."""
    judge_seconds: float
    options: Settings = field(default_factory=dict[str, Any])
    """What differs from the preset."""
    long: bool | None = None
    """Whether it is for logs of LONG rows and more, or for the others alone; None: for all."""

    def seconds(self, slowness: float = 1.0, candidates: int | None = None) -> float:
        """What it costs on a machine that takes so many times as long, with the first `candidates` only or with all."""
        trained = sum(each.seconds for each in self.candidates[:candidates])
        return slowness * (START + trained) + self.judging(slowness)

    def judging(self, slowness: float, candidates: int | None = None) -> float:
        """A part of the judge's time goes into compiling and calls, which a faster machine hardly shortens; a part into
        the log alone, whatever is judged."""
        settings = [len(each.settings) for each in self.candidates]
        share = sum(settings[:candidates]) / sum(settings)
        return max(0.5, slowness) * self.judge_seconds * (LOG_ALONE + (1 - LOG_ALONE) * share)


def sbac_candidate(critic: str, alpha: float, seconds: float, starts_from: str | None = None) -> LearnCandidate:
    """One setting of SBAC."""
    return LearnCandidate(f"{critic}-{alpha:g}", [{"critic": critic, "alpha": alpha}], seconds, starts_from)


def kind_of_critic(critic: str, alphas: Sequence[float], seconds: float, **options: Any) -> LearnCandidate:
    """Several alphas with one kind of critic, which a GPU trains in the time of one."""
    settings: list[Settings] = [{"critic": critic, "alpha": alpha} for alpha in alphas]
    return LearnCandidate(critic, settings, seconds, **options)


def gpu_candidates(first: float, second: float, third: float) -> list[LearnCandidate]:
    """The kinds of critic at the preset `tuned`, which take so many seconds."""
    return [
        kind_of_critic("mu", [1.0, 0.0625], first),
        kind_of_critic("pi", [0.125, 0.25, 0.5], second, starts_from="mu"),
        kind_of_critic("expectile", [0.25], third),
    ]


QUICK, FULL = EFFORTS["quick"], EFFORTS["full"]
BRISK = replace(QUICK, replicates=3, steps=(2_000, 3_000), model_steps=3_000, model_members=5)
ROOMY = replace(BRISK, model_hidden=(200, 200, 200), model_steps=6_000, model_members=10)
"""A larger model, which is nearer to the truth (`lab-notes/judge`) and takes as long as training."""
GLANCE = replace(QUICK, replicates=2, steps=(2_900, 100), model_hidden=(64, 64), model_steps=500, model_members=2)
"""Of a log from which nothing can be promised: the card needs a judge, and the clone its steps."""
PI, PI_QUARTER = sbac_candidate("pi", 1.0, 285), sbac_candidate("pi", 0.25, 90, "pi-1")
MU, MU_SIXTEENTH = sbac_candidate("mu", 1.0, 55, "pi-1"), sbac_candidate("mu", 0.0625, 50, "pi-1")
EXPECTILE = sbac_candidate("expectile", 0.25, 365)
"""On two cores, with five seeds."""
CORES = ("cpu", "quick", [20_000, 10_000])
TABLE = (
    PlanRow("a glance", "any", "quick", [3_000], 1, [LearnCandidate("bc", [{}], 10, algorithm="bc")], GLANCE, 20),
    PlanRow("two cores, 5 minutes", *CORES, 2, [replace(PI, seconds=150), replace(MU, seconds=32)], BRISK, 91),
    PlanRow("two cores, 15 minutes", *CORES, 5, [PI, MU], ROOMY, 420, long=False),
    PlanRow("two cores, 20 minutes", *CORES, 5, [PI, MU, PI_QUARTER, MU_SIXTEENTH], ROOMY, 600, long=False),
    PlanRow("two cores, 30 minutes", *CORES, 5, [PI, MU, PI_QUARTER, MU_SIXTEENTH, EXPECTILE], ROOMY, 680, long=False),
    PlanRow(
        "two cores, 15 minutes, a long log",
        *("cpu", "quick", [40_000, 20_000], 3),
        [replace(PI, seconds=410), replace(MU, seconds=70)],
        *(ROOMY, 400),
        long=True,
    ),
    PlanRow(
        "two cores, 30 minutes, a long log",
        *("cpu", "quick", [50_000, 25_000], 5),
        [replace(PI, seconds=780), replace(MU, seconds=135), replace(PI_QUARTER, seconds=225)],
        *(ROOMY, 600),
        long=True,
    ),
    PlanRow(
        "GPU, 5 minutes",
        *("gpu", "quick", [40_000, 20_000], 5),
        [kind_of_critic("pi", [1.0, 0.25], 90), kind_of_critic("mu", [1.0], 40, starts_from="pi")],
        *(QUICK, 70),
    ),
    PlanRow("GPU, 10 minutes", "gpu", "tuned", [100_000, 50_000], 3, gpu_candidates(140, 80, 130), FULL, 180),
    PlanRow("GPU, 20 minutes", "gpu", "tuned", [200_000, 100_000], 3, gpu_candidates(250, 140, 240), FULL, 200),
)
"""From small to large, for each device and length of a log. The first is for logs with fewer than FEWEST_ROWS rows,
the others are not."""


@dataclass(frozen=True)
class LearnPlan:
    """plan.json: what was asked, the row, and what has been decided and spent since."""

    format: int
    log: str
    hash: str
    minutes: float
    seed: int
    row: PlanRow
    slowness: float
    """What the probe said: the time that this machine takes, for one second of the table's."""
    ends: str | None = None
    watch: list[str] = field(default_factory=list[str])
    dropped: list[str] | None = None
    """The candidates that are not trained; None: not decided yet."""
    times: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds that each finished part took. What a kill lost is not counted."""

    @property
    def spent(self) -> float:
        return sum(self.times.values())

    @property
    def seeds(self) -> list[int]:
        """Those of another `--seed` are others."""
        return [self.seed * self.row.seeds + number for number in range(self.row.seeds)]

    @property
    def kept(self) -> list[LearnCandidate]:
        return [each for each in self.row.candidates if each.name not in (self.dropped or [])]

    def with_time(self, part: str, seconds: float) -> "LearnPlan":
        """A part is finished. One that was interrupted has the time of its earlier stretches already."""
        return replace(self, times={**self.times, part: self.times.get(part, 0.0) + seconds})


def rows_for(rows: int, device: str) -> list[PlanRow]:
    """Those for a log with so many rows, from small to large."""
    if rows < FEWEST_ROWS:
        return [TABLE[0]]
    return [row for row in TABLE[1:] if row.device == device and row.long in (None, rows >= LONG)]


def least_minutes(rows: int, device: str, slowness: float) -> int:
    """The fewest minutes in which something is learned from a log with so many rows: with the first candidate alone."""
    return math.ceil(rows_for(rows, device)[0].seconds(slowness, 1) / 60)


def pick(rows: int, device: str, minutes: float, slowness: float) -> PlanRow:
    """The largest row that fits. The smallest may fit in part; minutes in which not even that fits are refused."""
    smallest, *others = rows_for(rows, device)
    if smallest.seconds(slowness, 1) > 60 * minutes:
        least = least_minutes(rows, device, slowness)
        raise UserError(f"minutes {minutes:g}: too few on this machine; expected at least {least}")
    return [smallest, *(row for row in others if row.seconds(slowness) <= 60 * minutes)][-1]


def to_drop(plan: LearnPlan, took: float) -> list[str]:
    """The last candidates, as many as would not fit, where the first one `took` so many seconds; the judge must fit."""
    first, *others = plan.row.candidates
    slowness = took / first.seconds
    left, dropped = 60 * plan.minutes - plan.spent, list[str]()
    while others and slowness * sum(e.seconds for e in others) + plan.row.judging(slowness, 1 + len(others)) > left:
        dropped.append(others.pop().name)
    return dropped


def checked_minutes(minutes: object) -> float:
    number = finite("minutes", minutes)
    if number <= 0:
        raise UserError(f"minutes {minutes}: expected a number above 0")
    return number


def read_plan(folder: Path) -> LearnPlan | None:
    """The plan of a folder, if it has one."""
    path = folder / PLAN_FILE
    if not path.exists():
        return None
    plan = parse(LearnPlan, files.read_json(path), str(path))
    if plan.format != PLAN_FORMAT:
        raise UserError(f"{path}: not a plan of this version of sbac (expected format {PLAN_FORMAT})")
    return plan


def write_plan(folder: Path, plan: LearnPlan) -> None:
    files.write_json(folder / PLAN_FILE, as_json(plan))


def plan_text(plan: LearnPlan) -> str:
    """The plan in a few lines."""
    row = plan.row
    settings = sum(len(each.settings) for each in row.candidates)
    expected = row.seconds(plan.slowness) / 60
    lines = [
        f"plan: {row.name!r}, about {expected:.0f} of {plan.minutes:g} minutes; this machine takes {plan.slowness:.1f} "
        "times as long as the one that it was measured on",
        f"  train: {counted(settings, 'setting')} with {counted(row.seeds, 'seed')} each, preset {row.preset}, "
        f"{phases_text(row.steps)} steps, and the mean of each setting's seeds as one policy more",
        *(f"    {each.name}: {_settings_text(each)}" for each in row.candidates),
        "  judge: all of them, the clone of the log beside them, from the log alone",
        "  if it is slower than expected, the last settings are dropped after the first one",
    ]
    return "\n".join(lines)


def _settings_text(candidate: LearnCandidate) -> str:
    texts = [
        " ".join(
            [candidate.algorithm, *(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in each.items())]
        )
        for each in candidate.settings
    ]
    return ", ".join(texts)
