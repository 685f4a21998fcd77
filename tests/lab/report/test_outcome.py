"""What a run says at its end and on its page: the log, the clone, the policies, and a verdict."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sbac
from sbac.errors import UserError
from sbac.files import write_json
from sbac.lab.naming import collect
from sbac.policy import Policy
from sbac.records import as_json
from sbac.report.compare import compare
from sbac.report.page import run_page, runs_page
from sbac.report.summary import outcome
from sbac.results.describe import describe
from sbac.runs import DataRecord, Episodes, EvaluationRow, LogReturns, MetricRow, Place, Run, RunRecord, Watch
from sbac.trust.choice import CHOICE_FORMAT, CandidateRecord, ChoiceRecord, LogRecord, read_choice
from tests.exporting.policies import make_policy

CLONES, POLICIES = (10.0, 12.0, 11.0), (20.0, 11.0, 23.0)


def made_run(
    algorithm: str = "sbac",
    preset: str = "quick",
    steps: tuple[int, ...] = (100, 200),
    clones: tuple[float, ...] = CLONES,
    policies: tuple[float, ...] = POLICIES,
    environment: str | None = "Pendulum-v1",
) -> Run:
    """A run with one setting, whose clones and policies have these mean returns."""
    phases = ["estimate", "improve"][-len(steps) :]
    seeds = range(len(policies))
    record = RunRecord(
        format=1,
        algorithm=algorithm,
        preset=preset,
        labels=[f"seed={seed}" for seed in seeds],
        runs=[{"seed": seed, "alpha": 2.0, "steps": list(steps)} for seed in seeds],
        evaluation=Watch(environment, 2, 0, None),
        versions={"sbac": "0.1.0"},
        data=DataRecord("log", "user", None, 1000, 20, "d" * 64),
        log=LogReturns(20, 9.0, 21.0, -3.0),
    )
    rows: list[EvaluationRow] = []
    metrics: list[MetricRow] = []
    for phase, end, means in zip(phases, steps, (clones, policies)[-len(steps) :], strict=True):
        for seed, mean in enumerate(means):
            place = Place(algorithm, seed, {"alpha": 2.0 if phase == phases[-1] else None}, phase, end)
            rows.append(EvaluationRow(place, Episodes("Pendulum-v1", [mean - 1.0, mean + 1.0], [200, 200], None)))
            metrics.append(MetricRow(place, {"policy_loss": 0.25, "entropy": 1.0}))
    return Run(record, [], metrics, rows if environment else [])


def test_the_end_table_has_the_log_and_the_clone_beside_the_policies() -> None:
    text = outcome(made_run())
    rows = {line[:22].strip(): line[22:].split() for line in text.splitlines()}
    assert rows["the log"] == ["20", "9.0", "-3.0"]
    assert rows["the log's best tenth"] == ["2", "21.0"]
    assert rows["the clone"] == ["3", "2", "11.0", "8.5", "to", "13.5", "9.0"]  # 11 ± 4.303 · 1 / √3
    assert rows["sbac alpha=2"] == ["3", "2", "18.0", "2.5", "to", "33.5", "10.0"]  # 18 ± 4.303 · 6.245 / √3


def test_the_verdict() -> None:
    last = outcome(made_run()).splitlines()[-1]
    assert last == (
        "sbac alpha=2: 2 of 3 seeds above the clone (+7.0 ± 17.4), 3 of 3 seeds above the log's mean, "
        "1 of 3 seeds above the log's best tenth."
    )
    last = outcome(made_run(clones=(30.0,), policies=(12.0,))).splitlines()[-1]
    assert last == "sbac alpha=2: not above the clone (-18.0), above the log's mean, not above the log's best tenth."


def test_without_an_environment_the_log_is_said() -> None:
    text = outcome(made_run(environment=None))
    assert "not evaluated" in text and "mean return 9.0, best tenth 21.0" in text


def test_the_page_of_a_run_says_what_came_out() -> None:
    page = run_page(describe(made_run()))
    assert "2 of 3 seeds above the clone" in page and "18.0 [2.5, 33.5]" in page and "11.0 [8.5, 13.5]" in page
    assert ">the clone</text>" in page and ">the log</text>" in page  # the learning curve's dashed lines


def test_the_page_of_a_run_without_an_environment_has_losses() -> None:
    page = run_page(describe(made_run(environment=None)))
    assert "policy_loss 0.25" in page and "the log is not here" in page and "entropy 1" not in page


def test_methods_of_different_presets_stand_in_one_view() -> None:
    other = made_run("td3-bc", "paper", steps=(300,), policies=(8.0, 9.0, 10.0))
    records = [describe(made_run()), describe(other)]
    page = runs_page(records, collect(records), "both")
    assert page.count("Every setting (each with its own steps)") >= 1 and "Every setting (300" not in page
    text = compare(made_run(), other, ("runs/a", "runs/b"))
    row = next(line for line in text.splitlines() if line.startswith("sbac alpha=2 / td3-bc alpha=2"))
    assert "18.0 ± 6.2" in row and "9.0 ± 1.0" in row and row.endswith("1.00")
    assert any(line.split()[:4] == ["the", "clone", "11.0", "-"] for line in text.splitlines())


def judged_run(folder: Path, gain: float, log: float = 50.0, warnings: tuple[str, ...] = ()) -> Run:
    """A run without an environment, with what `sbac select` may have found of its two policies."""
    run = made_run(environment=None)
    low, high = (None, None) if warnings else (gain - 2, gain + 2)
    network = make_policy("deterministic")
    about = {"algorithm": "sbac", "grid": []}
    policies = [Policy(network.kind, network.arrays, {**about, "seed": i, "label": f"seed={i}"}) for i in range(2)]
    of: dict[str, Any] = {"policy": network.hash}
    taken = CandidateRecord(
        "seed=1", 1, {}, log + gain, None, None, gain, low, high, list(warnings), bool(warnings), **of
    )
    other = CandidateRecord("seed=0", 0, {}, log, None, None, 0.0, -1.0, 1.0, [], False, **of)
    logged = LogRecord("log", str(log), log, log, 1.0, 0.0, [log])
    choice = ChoiceRecord(CHOICE_FORMAT, "seed=1", True, "it promises the most", logged, 0.99, [other, taken])
    folder.mkdir()
    write_json(folder / "selection.json", as_json(choice))
    return Run(run.record, policies, run.metric_rows, run.evaluation_rows, folder)


def test_runs_without_an_environment_are_compared_by_what_the_log_says(tmp_path: Path) -> None:
    blind, names = made_run(environment=None), ("runs/a", "runs/b")
    assert "sbac select RUN" in compare(blind, blind, names)
    first = judged_run(tmp_path / "a", gain=7.0)
    second = judged_run(tmp_path / "b", gain=9.5, warnings=("far from the log",))
    rows = {line.split("  ")[0]: line.split() for line in compare(first, second, names).splitlines()}
    assert rows["policy"] == ["policy", "seed=1", "seed=1"]
    assert rows["gain"] == ["gain", "7.00", "[5.00,", "9.00]", "9.50"]  # a warning takes the interval away
    assert rows["warnings"] == ["warnings", "none", "1", "warning"]
    assert "not asked yet" in compare(first, blind, names) and "sbac select RUN" not in compare(first, blind, names)
    elsewhere = judged_run(tmp_path / "c", gain=7.0, log=10.0)
    assert "do not compare" in compare(first, elsewhere, names)
    assert "do not compare" not in compare(first, second, names)


def test_the_page_of_a_judged_run_opens_with_the_answer(tmp_path: Path) -> None:
    page = run_page(describe(made_run(environment=None)))
    assert "sbac select RUN judges these policies" in page and "is taken" not in page
    for warnings, said in (
        ((), "Discounted, it is expected to earn 57.0 over 50.0: +7.0, with 90 % between +5.0 and +9.0."),
        (("far away",), "Nothing can be promised of the policy from this log alone."),
    ):
        run = judged_run(tmp_path / str(len(warnings)), gain=7.0, warnings=warnings)
        assert run.folder is not None
        page = run_page(describe(run), choice=read_choice(run.folder, run.policies))
        assert said in page and page.index(said) < page.index("What came out") and "was played" not in page
        assert ('<p class="warning">far away</p>' in page) == bool(warnings)


def test_a_choice_of_a_policy_that_it_does_not_list(tmp_path: Path) -> None:
    run = judged_run(tmp_path / "a", gain=7.0)
    path = tmp_path / "a" / "selection.json"
    path.write_text(path.read_text().replace('"label": "seed=1"', '"label": "seed=2"', 1))
    with pytest.raises(UserError, match=r"selection.json: it takes 'seed=2'"):
        compare(run, run, ("a", "a"))


def test_a_run_shows_itself(tmp_path: Path) -> None:
    run = made_run()
    assert repr(run) == "Run(sbac, preset quick, from log: 0 of 3 policies)"
    picture = sbac.plot(run, tmp_path / "curve.png")
    assert picture._repr_png_().startswith(b"\x89PNG") and (tmp_path / "curve.png").read_bytes() == picture.png
    with pytest.raises(UserError, match="its log 'log' is not found"):
        sbac.plot(made_run(environment=None))


def test_a_run_of_an_earlier_version_has_no_returns_of_its_log() -> None:
    run = made_run()
    older = Run(replace(run.record, log=None), [], run.metric_rows, run.evaluation_rows)
    assert outcome(older).splitlines()[-1] == "sbac alpha=2: 2 of 3 seeds above the clone (+7.0 ± 17.4)."
