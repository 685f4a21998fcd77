"""What `sbac learn` leaves in its folder: the policy, its card, a report, and last the answer."""

import importlib.util
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sbac import files
from sbac.data import Dataset
from sbac.exporting import export
from sbac.learning.answer import (
    ANSWER_FILE,
    ANSWER_FORMAT,
    CARD_FILE,
    ONNX_FILE,
    POLICY_FILE,
    REPORT_FILE,
    AnswerRecord,
    Decision,
    answer_lines,
    decide_on,
    next_step,
    opening_lines,
)
from sbac.learning.plan import FEWEST_ROWS, LearnPlan
from sbac.policy import Policy
from sbac.records import as_json
from sbac.report.card import build_card
from sbac.report.page import (
    PagePart,
    Section,
    chart_sections,
    compared_note,
    compared_table,
    config_section,
    render,
    subtitle,
)
from sbac.results.describe import describe
from sbac.results.series import series_of
from sbac.runs import Run
from sbac.trust.choice import Choice, ChoiceRecord, policy_of, promise_of, write_choice
from sbac.trust.log import read_log


@dataclass(frozen=True)
class Learned:
    """What there is to write about."""

    data: Dataset
    judged_on: Dataset
    """The log, or episodes that were drawn of it."""
    notes: Sequence[str]
    """On the log, for the reader."""
    problems: Sequence[str]
    """Of the log: what in it may mislead."""
    runs: Sequence[Run]
    committees: Mapping[str, Policy]
    """By the names of their files."""
    choice: Choice


def write(
    learned: Learned, plan: LearnPlan, folder: Path, shown: Path | None, lap: Callable[[], float]
) -> tuple[AnswerRecord, Policy | None]:
    """Everything that the folder is to hold. answer.json comes last: with it, the folder is a finished one.

    What another judgement left there goes first.

    shown: the folder as the reader knows it; None: it will be gone.
    """
    for name in (ANSWER_FILE, POLICY_FILE, ONNX_FILE):
        (folder / name).unlink(missing_ok=True)
    data, choice = learned.data, learned.choice
    decision = decide_on(choice, len(data) >= FEWEST_ROWS)
    promise = promise_of(decision.row, choice.record.log) if decision.row is not None and decision.believed else None
    record = keep_choice(learned, decision, folder)
    policy = None if decision.row is None else hand_over(learned.runs[0], record, folder)
    opening = opening_lines(choice, decision)
    best = "the best, not taken" if decision.row is None else "taken"
    log = read_log(learned.judged_on, record.discount)
    card = build_card(learned.runs[0], log, record, opening=opening, best=best)
    files.write_atomic(folder / CARD_FILE, card.encode())
    reasons = [] if decision.row is None else decision.row.warnings
    warnings = [*reasons, *learned.problems]
    plan = plan.with_time("write", lap())
    names = [POLICY_FILE, ONNX_FILE, CARD_FILE]
    written = ", ".join([*(name for name in names if (folder / name).exists()), REPORT_FILE])
    taken = f"It took {plan.spent / 60:.1f} of {plan.minutes:g} minutes and at most {peak_memory():.1f} GB of memory."
    lines = answer_lines(
        choice,
        decision,
        notes=[*learned.notes, *drawn_note(learned)],
        warnings=warnings,
        dropped=plan.dropped or [],
        next_step=next_step(decision, promise, data, shown),
        last=[taken] if shown is None else [f"Written to {shown}: {written}.", taken],
    )
    files.write_atomic(folder / REPORT_FILE, report_page(lines, record, learned.runs, data, best).encode())
    answer = AnswerRecord(
        ANSWER_FORMAT,
        None if decision.row is None else decision.row.label,
        None if policy is None else str(policy.config["algorithm"]),
        *((None, None, None) if promise is None else (promise.gain, promise.low, promise.high)),
        warnings,
        decision.row is None,
        choice.watched if decision.row is None else [asdict(each) for each in decision.row.watched],
        plan.minutes,
        plan.spent / 60,
        plan,
        lines,
    )
    files.write_json(folder / ANSWER_FILE, as_json(answer))
    return answer, policy


def keep_choice(learned: Learned, decision: Decision, folder: Path) -> ChoiceRecord:
    """Writes the committees, and the choice into the first run's folder, where `sbac select --try` looks for it."""
    choice, home = learned.choice, learned.runs[0].folder
    assert home is not None
    paths: dict[str | None, str] = {}
    for name, policy in learned.committees.items():
        file = folder / "committees" / f"{name}.safetensors"
        policy.save(file)
        paths[policy.hash] = os.path.relpath(file, home)
    record = replace(
        choice.record,
        label=choice.label if decision.row is None else decision.row.label,
        reason=choice.reason if decision.row is None else decision.reason,
        candidates=[replace(row, path=paths.get(row.policy, row.path)) for row in choice.candidates],
        log=replace(choice.record.log, learned_elsewhere=[]),  # episodes that were drawn of the log are no other log
    )
    write_choice(home, record, choice.clone)
    return record


def hand_over(run: Run, record: ChoiceRecord, folder: Path) -> Policy:
    """Writes the policy that was taken, as ONNX too where that is installed."""
    policy = policy_of(run, next(row for row in record.candidates if row.label == record.label))
    policy.save(folder / POLICY_FILE)
    if importlib.util.find_spec("onnx") is not None:
        export(policy, folder / ONNX_FILE)
    return policy


def drawn_note(learned: Learned) -> list[str]:
    if learned.judged_on is learned.data:
        return []
    drawn, all_episodes = len(learned.judged_on.episodes), len(learned.data.episodes)
    return [f"Judged on {drawn:,} of {all_episodes:,} episodes, drawn at random"]


def report_page(lines: Sequence[str], choice: ChoiceRecord, runs: Sequence[Run], data: Dataset, best: str) -> str:
    """The answer and all that was judged, and below it what the trainings logged and how the policies act."""
    records = [describe(run, data) for run in runs]
    series = [
        replace(entry, method=f"{entry.method} {run.folder.name}" if run.folder is not None else entry.method)
        for run, record in zip(runs, records, strict=True)
        for entry in series_of(record)
    ]
    by_label = {entry.label: entry for entry in series}
    table, notes = compared_table(choice, best), [compared_note(choice)]
    answer = PagePart(lines=lines[:1], texts=lines[1:], table=table, notes=notes)
    sections = [
        Section("answer", "The answer", [answer]),
        *chart_sections({data.name: by_label}),
        config_section(records),
    ]
    title = f"What was learned from {data.name}"
    return render(title, subtitle(records, series), sections, tasks=[data.name], methods=list(by_label))


def peak_memory() -> float:
    """Of this process, in gigabytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e9 if sys.platform == "darwin" else 1e6)
