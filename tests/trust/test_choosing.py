"""Which policy is taken: the rule on made-up estimates, and a whole choice that reads nothing but policies and log."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sbac
from sbac.algorithms import find
from sbac.cli.select import show
from sbac.policy import Policy
from sbac.report.card import build_card
from sbac.trust.behaviour import behaviour_at, clone_policy, cloned
from sbac.trust.choice import (
    CLONE,
    Choice,
    ChoiceRecord,
    LogRecord,
    Promise,
    policy_of,
    promise_of,
    read_choice,
    write_choice,
)
from sbac.trust.choosing import candidate_record, log_record, select
from sbac.trust.contenders import log_of, preset_setting
from sbac.trust.deciding import apart, decide, usual_candidate
from sbac.trust.describe import choice_text, promise_text, watched_text
from sbac.trust.estimates import conclude, watched_rate
from sbac.trust.evidence import EFFORTS, Effort, Facts, Question, summary
from sbac.trust.log import read_log
from sbac.trust.trials import read_trials
from sbac.trust.watching import Watched, WatchedRate
from tests.learning.small import point_log
from tests.truth.logged import Table

from .test_estimates import sound

TINY = Effort(2, 2, (16,), 32, (50, 50), 1e-3, 0.1, (16,), 50)


def candidate(alpha, gains, optimism=0.0, **changes):
    estimate = conclude(sound(np.full(4, 5.0), gains, **({"moved": 0.0, "missed": 0.0} | changes)))
    estimate.diagnostics["optimism"] = optimism
    return candidate_record(f"alpha={alpha:g}_seed=0", 0, {"alpha": alpha}, estimate)


def by_episode(alpha, episode, spread=0.0, gains=(1.0, 1.1, 1.0, 0.9)):
    """With what a whole episode earns by a model, and how far its members differ."""
    return candidate(alpha, gains, model_episode=episode, model_episode_spread=spread, episode_deviation=40.0)


def logged(episode: float = 250.0, deviation: float = 40.0) -> LogRecord:
    return LogRecord("log", "0", 5.0, episode, 100.0, 0.0, [5.0], steps=100, episode_deviation=deviation)


def test_the_promise_is_a_whole_episodes_undiscounted_gain() -> None:
    row = replace(by_episode(1.0, 300.0), episode_low=280.0, episode_high=330.0)
    assert promise_of(row, logged()) == Promise(50.0, 30.0, 80.0, 20.0)
    assert promise_text(row, logged()) == "promise: +50.0 [30.0, 80.0] (+20 %) an episode, where the log earns 250.0"
    near_zero = promise_of(row, logged(episode=30.0))
    assert near_zero is not None and near_zero.gain == 270.0 and near_zero.percent is None
    below = promise_of(row, logged(episode=-500.0))
    assert below is not None and below.percent == 160.0


def test_without_an_estimate_of_whole_episodes_the_text_gives_the_discounted_gain() -> None:
    assert promise_of(USUAL, logged()) is None
    text = promise_text(USUAL, logged())
    assert text.startswith("promise: none for a whole episode; the discounted gain is 1.000 [")
    warned = candidate_record("x", 0, {}, conclude(sound(model_episode=300.0, reach=3.5)))
    assert promise_of(warned, logged()) is None
    assert promise_text(warned, logged()) == "promise: none; the warnings say why"


def test_the_text_says_what_was_left_out_what_worsens_and_what_ends_suggest() -> None:
    falls = WatchedRate("end", "end", 0.1, 0.4, 0.2, 0.6, worse=True)
    row = replace(by_episode(1.0, 300.0), watched=[falls], left_out=["the learned model is left out"])
    log = replace(logged(), suggested_end="height < 0.7", warnings=["rows mislead"], notes=["cut"])
    text = choice_text(Choice(None, ChoiceRecord(2, row.label, True, "best", log, 0.99, [row]), USUAL))  # type: ignore
    rate = "episodes that end early: the log 10.0 %, the policy 40.0 % [20.0 %, 60.0 %]"
    assert [line for line in text.splitlines() if line.startswith(("watched", "note", "warning"))] == [
        f"watched: {rate}",
        "note: cut",
        "note: the learned model is left out",
        "note: the log's own ends are told by --ends 'height < 0.7', on held-out episodes too",
        "warning: the log: rows mislead",
        f"warning: {row.label}: the return rises, and so does what is watched, {rate}",
    ]


@pytest.mark.parametrize(("share", "told"), [(0.04, False), (0.06, True)])
def test_what_is_rare_in_the_log_gets_no_interval(share: float, told: bool) -> None:
    """Neither a rule nor an end; a column is no share."""
    for kind in ("rule", "end", "column"):
        thing = Watched("x < 1", kind, np.array([0.0, 1.0]), np.array([share, share]), share)
        facts = Facts(sound() | summary(f"model_{thing.quantity}", np.array([0.0, 0.01, 0.02])))
        rate = watched_rate(thing, facts, learned=True, believed=True, gain=1.0)
        has_interval = told or kind == "column"
        assert rate.rate is not None and (rate.low is not None, rate.high is not None) == (has_interval, has_interval)
        assert ("too rare in the log for an interval" in watched_text(rate)) == (not has_interval)


LOW = candidate(0.25, [0.1, 0.2, 0.1, 0.2])
USUAL = candidate(1.0, [0.9, 1.0, 1.1, 1.0])
CLEAR = candidate(4.0, [1.9, 2.0, 2.1, 2.0])
FAR = candidate(16.0, [8.0, 8.1, 8.2, 8.1], distance=9.0)


def test_where_it_can_tell_it_takes_the_best_and_else_the_presets() -> None:
    verdict = decide([LOW, USUAL, CLEAR, FAR], {"alpha": 1.0})  # a warning counts more than any gain
    assert FAR.set_aside and verdict.label == CLEAR.label and verdict.decided
    verdict = decide([LOW, USUAL, candidate(4.0, [0.5, 1.9, 0.6, 1.3])], {"alpha": 1.0})
    assert verdict.label == USUAL.label and not verdict.decided and "cannot tell" in verdict.reason
    warned = candidate(1.0, [0.9, 1.0, 1.1, 1.0], distance=9.0)
    assert decide([LOW, warned], {"alpha": 1.0}).label == LOW.label
    verdict = decide([warned, FAR], {"alpha": 1.0})
    assert verdict.label == warned.label and not verdict.decided and "without a promise" in verdict.reason


def test_whole_episodes_decide_where_a_model_was_asked() -> None:
    """A policy of larger discounted gain that falls early is not taken."""
    usual, stays = by_episode(1.0, 300.0), by_episode(0.5, 330.0)
    falls = by_episode(0.25, 200.0, gains=[3.0, 3.1, 3.0, 2.9])
    assert decide([usual, falls], {"alpha": 1.0}).label == usual.label
    assert decide([usual, falls, stays], {"alpha": 1.0}).label == stays.label
    for episode, taken in ((319.0, False), (321.0, True)):  # half a deviation of the log is 20
        verdict = decide([usual, by_episode(0.5, episode)], {"alpha": 1.0})
        assert (verdict.label != usual.label) == taken == verdict.decided
    sure, unsure = by_episode(0.5, 400.0, spread=10.0), by_episode(0.25, 420.0, spread=80.0)
    assert decide([usual, sure, unsure], {"alpha": 1.0}).label == sure.label
    lasting = replace(by_episode(0.5, 310.0), episode=400.0)  # put right: promised, and not what it is ranked by
    assert decide([usual, lasting], {"alpha": 1.0}).label == usual.label


def test_the_usual_setting_is_the_nearest_by_ratio() -> None:
    assert usual_candidate([LOW, CLEAR], {"alpha": 0.5}).label == LOW.label
    assert usual_candidate([LOW, CLEAR], {"alpha": 2.0}).label == CLEAR.label
    assert apart(2.0, 1.0) == apart(0.5, 1.0)
    assert apart("q", "none") == 1.0 and apart(0.0, 0.0) == 0.0


def clone(gains=(1.0, 1.1, 1.0, 0.9), **changes):
    return replace(candidate(1.0, gains, **changes), label=CLONE, setting={})


def test_what_does_not_promise_more_than_the_clone_is_not_taken() -> None:
    """Of policies and clone, all by the same estimate."""
    assert decide([LOW, USUAL, clone((0.5, 0.5, 0.6, 0.4))], {"alpha": 1.0}).label == USUAL.label
    verdict = decide([LOW, USUAL, clone((1.2, 1.3, 1.2, 1.1))], {"alpha": 1.0})
    assert verdict.label == CLONE and "clone of the log" in verdict.reason
    same = clone((0.9, 1.0, 1.1, 1.0))
    assert decide([LOW, USUAL, same], {"alpha": 1.0}).label == CLONE
    close = candidate(4.0, [1.2, 1.3, 1.3, 1.2])  # cannot be told from the preset's, which the clone equals
    assert decide([LOW, USUAL, close], {"alpha": 1.0}).label == USUAL.label
    assert decide([LOW, USUAL, close, same], {"alpha": 1.0}).label == close.label
    warned = clone((9.0, 9.1, 9.0, 8.9), distance=9.0)
    assert decide([LOW, USUAL, warned], {"alpha": 1.0}).label == USUAL.label


def strayed(row, strays):
    return replace(row, diagnostics={**row.diagnostics, "model_strays": strays})


def test_what_leaves_the_logs_states_early_is_taken_only_where_all_do() -> None:
    """Beside the clone, and only where it is asked for."""
    beside = strayed(clone((0.1, 0.1, 0.1, 0.2)), 0.5)
    near, leaves = strayed(USUAL, 0.54), strayed(CLEAR, 0.56)
    assert decide([near, leaves, beside], {"alpha": 1.0}).label == CLEAR.label
    verdict = decide([near, leaves, beside], {"alpha": 1.0}, near=True)
    assert verdict.label == USUAL.label and verdict.decided
    verdict = decide([strayed(USUAL, 0.56), strayed(CLEAR, 0.54), beside], {"alpha": 1.0}, near=True)
    assert verdict.label == CLEAR.label and "leaves the states of the log" in verdict.reason
    unknown = decide([near, CLEAR, beside], {"alpha": 1.0}, near=True)  # no rollout of it lasts so long
    assert unknown.label == USUAL.label
    for everyone in (
        [strayed(USUAL, 0.6), leaves, beside],
        [near, leaves, clone((0.1, 0.1, 0.1, 0.2))],
        [near, leaves],
    ):
        assert decide(everyone, {"alpha": 1.0}, near=True).label == CLEAR.label


def test_optimism_decides_between_policies_and_not_against_the_clone() -> None:
    bold, careful = (
        candidate(0.25, [2.0, 2.1, 2.0, 1.9], optimism=5.0),
        candidate(4.0, [1.8, 1.9, 1.8, 1.7], optimism=0.5),
    )
    assert decide([bold, careful, clone()], {"alpha": 4.0}).label == careful.label
    assert decide([bold, clone()], {"alpha": 0.25}).label == bold.label
    hopeless = candidate(2.0, [1.9, 2.0, 2.1, 2.1], optimism=1.2)
    assert decide([USUAL, hopeless], {"alpha": 1.0}).label == USUAL.label
    episodes = replace(
        by_episode(0.25, 320.0), diagnostics={**by_episode(0.25, 320.0).diagnostics, "episode_optimism": 50.0}
    )
    assert episodes.promise == pytest.approx(270.0) and episodes.expected == pytest.approx(320.0)


def test_where_it_cannot_tell_the_first_runs_preset_is_taken() -> None:
    other = replace(candidate(1.0, [0.9, 1.1, 1.2, 1.0]), label="other/alpha=1_seed=0")
    assert decide([USUAL, other], {"alpha": 1.0}, [USUAL]).label == USUAL.label
    assert decide([USUAL, other], {"alpha": 1.0}, [other]).label == other.label


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = sbac.Dataset(**Table.random(0).log(40, 0))
    folder = tmp_path_factory.mktemp("run") / "run"
    small = {"steps": 30, "seeds": 1, "evaluate": False, "hidden": [16], "batch_size": 32}
    return data, folder, sbac.train(data, "td3-bc", alpha=[0.5, 2.0], out=folder, **small)


@pytest.fixture(scope="module")
def choice(trained):
    data, _, run = trained
    return select(run, data, effort=TINY)


def test_a_choice_has_what_the_contract_names(choice, trained) -> None:
    assert isinstance(choice, Choice) and choice.best in (*trained[2].policies, choice.clone)
    assert {row["label"] for row in choice.table} == {"alpha=0.5_seed=0", "alpha=2_seed=0", CLONE}
    first = choice.table[0]
    assert first["label"] == choice.label == choice.best.config["label"]
    names = {"label", "alpha", "seed", "value", "low", "high", "gain", "gain_low", "gain_high", "warnings", "set_aside"}
    assert set(first) == names | {"episode", "episode_low", "episode_high", "watched"}
    assert {row["alpha"] for row in choice.table} == {0.5, 2.0, None}
    for row in choice.table:
        assert (row["gain_low"] is None) == bool(row["warnings"])
    for candidate in choice.candidates:
        assert "model_gain" in candidate.diagnostics
    json.dumps(choice.table, allow_nan=False)
    assert choice.label in choice_text(choice)


def test_the_first_row_is_the_log_itself(choice, trained, capsys) -> None:
    data = trained[0]
    log = {"episode": data.returns.mean(), "length": 50.0, "ends": 0.0, "value": choice.log, "gain": 0.0}
    assert choice.log_row["label"] == "the log"
    assert {name: choice.log_row[name] for name in log} == pytest.approx(log, rel=1e-5)
    for row in choice.table:
        assert row["value"] - choice.log == pytest.approx(row["gain"])
    assert choice.log == pytest.approx(np.mean(choice.record.log.returns), rel=0.01)
    show(choice, as_lines=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [choice.log_row, *choice.table]
    show(choice)
    rows = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(rows) if line.startswith("policy"))
    assert rows[at + 2].split()[:4] == ["the", "log", f"{data.returns.mean():.2f}", f"{choice.log:.2f}"]
    assert "50 steps an episode on average, 0 % of the episodes end early" in rows[0]


def test_episodes_that_end_early_are_counted() -> None:
    ends = np.zeros(40, bool)
    ends[[3, 19, 29]] = True
    cuts = np.zeros(40, bool)
    cuts[39] = True
    rng = np.random.default_rng(0)
    columns = {"observations": rng.normal(size=(40, 2)), "actions": rng.uniform(-1, 1, (40, 1)), "rewards": np.ones(40)}
    log = read_log(sbac.Dataset(**columns, terminals=ends, timeouts=cuts), 0.9)
    record = log_record(log, np.array([1.0, 2.0, 3.0, 6.0]))
    assert (record.value, record.episode, record.length, record.ends) == (3.0, 10.0, 10.0, 0.75)
    assert record.returns[0] == 1.0 and record.returns[-1] == 6.0 and len(record.returns) == 100


def test_the_answer_says_what_is_watched_and_what_about_the_log_misleads(
    trained, tmp_path, monkeypatch, capsys
) -> None:
    """From a file with a column that is neither state, action nor reward; one long episode."""
    from sbac import cli

    data, folder = trained[0], tmp_path / "run"
    shutil.copytree(trained[1], folder)
    columns = data.arrays() | {"timeouts": np.arange(len(data)) == len(data) - 1, "in_range": data.observations[:, 1]}
    del columns["next_observations"]
    np.savez(tmp_path / "log.npz", **columns)
    monkeypatch.setitem(EFFORTS, "quick", TINY)
    monkeypatch.setattr("sbac.trust.choosing.misleading", lambda data: [f"{len(data):,} rows mislead"])
    words = ["select", str(folder), "--data", str(tmp_path / "log.npz"), "--ends", "o0 > 0.5"]
    assert cli.main([*words, "--watch", "in_range", "o1 > 0.5 or o2 > 0.5", "end", "--beside"]) == 0
    text = capsys.readouterr().out
    shares = data.observations[:, 1].mean(), 100 * data.observations[:, 1:3].sum(1).mean()
    assert f"watched: in_range: the log {shares[0]:.4f} on average, the policy " in text
    assert f"watched: o1 > 0.5 or o2 > 0.5: the log {shares[1]:.1f} % of the steps, the policy " in text
    assert "watched: episodes that end early: the log 0.0 %, no estimate for the policy" in text
    assert "note: few episodes: the log is judged in 40 blocks of about 50 steps, each as an episode" in text
    assert "warning: the log: 2,000 rows mislead" in text
    true = int(data.observations[1:, 0].sum())
    assert (
        f"the rule of the end, o0 > 0.5, contradicts the log: it is true at {true} of 1,999 rows that went on" in text
    )
    assert "promise: none" in text and "a hidden cause" in text
    record = read_choice(folder, trained[2].policies)
    assert record is not None and [each.name for each in record.candidates[0].watched][0] == "in_range"
    assert record.log.hash == sbac.load(tmp_path / "log.npz").hash
    assert cli.main([*words, "--watch", "in_rang"]) == 2
    assert "unknown column to watch 'in_rang'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def second(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other") / "other"
    sbac.train(trained[0], "bc", steps=30, seeds=1, evaluate=False, out=folder, hidden=[8], batch_size=32)
    return folder


def test_several_runs_are_judged_in_one_go(trained, second, tmp_path, monkeypatch, capsys) -> None:
    """Two methods: all act on the device. The card and the export follow the choice into the other run's folder."""
    from sbac import cli

    data, folder = trained[0], tmp_path / "run"
    shutil.copytree(trained[1], folder)
    shutil.copytree(second, tmp_path / "other")
    judged = select([folder, tmp_path / "other"], data, effort=TINY)
    labels = {"run/alpha=0.5_seed=0", "run/alpha=2_seed=0", "other/seed=0", CLONE}
    assert {row["label"] for row in judged.table} == labels
    exported: list[sbac.Policy] = []
    monkeypatch.setattr("sbac.exporting.export", lambda policy, *_: exported.append(policy))
    paths = {row.label: row.path for row in judged.candidates}
    assert paths["run/alpha=2_seed=0"] == "policies/alpha=2_seed=0.safetensors"
    assert paths["other/seed=0"] == "../other/policies/seed=0.safetensors"
    for label in sorted(labels):
        write_choice(folder, replace(judged.record, label=label), judged.clone)
        record = read_choice(folder, sbac.Run.load(folder).policies)
        assert record is not None
        taken = next(row for row in record.candidates if row.label == label)
        policy = policy_of(sbac.Run.load(folder), taken)
        assert cli.main(["export", str(folder), "--out", "policy.onnx"]) == 0
        assert policy.config["label"] == label.split("/")[-1] == exported[-1].config["label"]
        np.testing.assert_array_equal(policy(data.observations[:5]), exported[-1](data.observations[:5]))
    page = build_card(sbac.Run.load(folder), read_log(data, 0.99), record)
    assert "Policy card: td3-bc, run/alpha=2_seed=0" in page
    assert cli.main(["select", str(folder), str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


def test_the_clone_takes_observations_by_name() -> None:
    names = {"observations": ["x", "one"], "actions": ["push"]}
    clone = clone_policy(Question(read_log(point_log(columns=names), 0.99), [], TINY))
    assert clone.columns == names
    np.testing.assert_array_equal(clone({"x": 0.5, "one": 1.0}), clone(np.array([0.5, 1.0])))


def test_policies_and_functions_are_judged_as_runs_are(trained, choice) -> None:
    data, _, run = trained

    def nothing(observations):
        return np.zeros((len(observations), 1))

    judged = select([run.policies[1], nothing, lambda x: nothing(x), nothing], data, effort=TINY, beside=())
    labels = [row["label"] for row in judged.table]
    assert sorted(labels) == ["<lambda>", "alpha=2_seed=0", CLONE, "nothing", "nothing (2)"]
    values = {row["label"]: row["value"] for row in judged.table}
    assert values["nothing"] == values["nothing (2)"] == values["<lambda>"] != values[CLONE]
    for bad in ([], [3], [nothing, None]):
        with pytest.raises(sbac.UserError, match="expected a run"):
            select(bad, data)  # type: ignore
    with pytest.raises(sbac.UserError, match="name one"):
        select(nothing)


def test_the_clone_acts_as_the_judges_model(trained, choice) -> None:
    """The policy of the package and the network that it was made of, by two computations."""
    log = read_log(trained[0], 0.99)
    mean, _ = behaviour_at(cloned(Question(log, [], TINY)), log.units.states(log.data.observations))
    np.testing.assert_allclose(choice.clone(log.data.observations), np.tanh(mean), atol=1e-5)


def test_nothing_but_policies_and_log_is_read(choice, trained, tmp_path, monkeypatch) -> None:
    """The same choice from a folder without evaluations, metrics and checkpoint, and without any environment."""
    data, folder, _ = trained
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare)
    for name in ("evaluations.jsonl", "metrics.jsonl"):
        (bare / name).write_text("")
    shutil.rmtree(bare / "checkpoint")
    record = json.loads((bare / "config.json").read_text())
    record["evaluation"]["environment"] = None
    (bare / "config.json").write_text(json.dumps(record))

    def closed(*arguments, **options):
        raise AssertionError("an environment was opened")

    monkeypatch.setattr("gymnasium.make", closed)
    monkeypatch.setattr("sbac.evaluation.rollout.Evaluator.__init__", closed)
    again = select(bare, data, effort=TINY)
    assert again.label == choice.label
    assert again.table == choice.table


def test_the_file_of_a_choice_reads_back_and_is_refused_for_other_policies(choice, trained, tmp_path) -> None:
    policies = trained[2].policies
    assert read_choice(tmp_path, policies) is None
    write_choice(tmp_path, choice.record)
    assert read_choice(tmp_path, policies) == choice.record
    moved = {name: array + 1e-3 for name, array in policies[0].arrays.items()}
    for others in ([Policy(policies[0].kind, moved, policies[0].config), policies[1]], policies[:1]):
        with pytest.raises(sbac.UserError, match=r"selection.json: it is about other policies than those of the run"):
            read_choice(tmp_path, others)


def test_an_unknown_method_is_noticed_before_the_estimates(trained, monkeypatch) -> None:
    data, folder, _ = trained
    run = sbac.Run.load(folder)
    run.record = replace(run.record, algorithm="td3-cb")
    monkeypatch.setattr("sbac.trust.choosing.judged_candidates", None)
    with pytest.raises(sbac.UserError, match="unknown algorithm 'td3-cb'"):
        select(run, data, effort=TINY)


def test_a_table_is_shown_before_it_cannot_be_written(choice, trained, tmp_path, monkeypatch, capsys) -> None:
    """As on a folder that is read-only."""
    from sbac import cli

    folder = tmp_path / "run"
    shutil.copytree(trained[1], folder)
    (folder / "selection.json").mkdir()
    monkeypatch.setattr("sbac.cli.select.choose", lambda *_: choice)
    assert cli.main(["select", str(folder)]) == 2
    said = capsys.readouterr()
    assert choice.reason in said.out and "selection.json: a folder" in said.err and said.err.count("\n") == 1


def test_bad_input_is_named(trained, tmp_path) -> None:
    data, folder, run = trained
    with pytest.raises(sbac.UserError, match="name it with --data"):
        select(folder, effort=TINY)  # arrays have no name to load them by
    small = sbac.Dataset(np.zeros((4, 2)), np.zeros((4, 1)), np.zeros(4), np.ones(4))
    with pytest.raises(sbac.UserError, match="the run's policies expect \\(6, 1\\)"):
        select(run, small, effort=TINY)


@pytest.fixture
def learned_from_a_file(tmp_path, monkeypatch):
    """A run that was given its log as a path from the folder it was started in."""
    place = tmp_path / "first"
    place.mkdir()
    monkeypatch.chdir(place)
    sbac.Dataset(**Table.random(0).log(25, 0)).save("log.npz")
    sbac.Dataset(**Table.random(0).log(25, 1)).save("other.npz")
    small = {"steps": 3, "seeds": 1, "evaluate": False, "hidden": [8], "batch_size": 8}
    return place, [sbac.train(name, "bc", out=f"runs/{name[:3]}", **small) for name in ("log.npz", "other.npz")]


def test_the_log_is_the_one_that_was_learned_from(learned_from_a_file, tmp_path, monkeypatch) -> None:
    place, (run, other) = learned_from_a_file
    hash_of = sbac.load("log.npz").hash
    assert log_of([run], None).hash == hash_of
    monkeypatch.chdir(tmp_path)  # from elsewhere by its absolute path
    loaded = sbac.Run.load(place / "runs/log")
    assert log_of([loaded], None).hash == hash_of
    sbac.load(place / "other.npz").save("log.npz")  # of the same name, and another log
    assert log_of([loaded], None).hash == hash_of
    (place / "log.npz").unlink()
    with pytest.raises(sbac.UserError, match="not the log that the run learned from.*name it with --data"):
        log_of([loaded], None)
    (tmp_path / "log.npz").unlink()
    with pytest.raises(sbac.UserError, match="its log 'log.npz' is not found.*name it with --data"):
        log_of([loaded], None)


def test_runs_of_two_logs_are_judged_only_on_one_that_is_named(learned_from_a_file, capsys) -> None:
    from sbac import cli

    _, runs = learned_from_a_file
    with pytest.raises(sbac.UserError, match="runs/oth: it did not learn from log.npz, as runs/log did"):
        select(runs, effort=TINY)
    judged = select(runs, "other.npz", effort=TINY, beside=())
    assert judged.record.log.learned_elsewhere == ["log.npz"]
    assert "NOT the log that policies learned from, log.npz" in choice_text(judged)
    assert "NOT the log" not in choice_text(select(runs[1], "other.npz", effort=TINY, beside=()))
    write_choice(runs[0].folder, judged.record, judged.clone)
    assert cli.main(["report", "runs/log", "--card", "--out", "card.html"]) == 2
    assert "it was judged on another log, other.npz; name that with --data" in capsys.readouterr().err
    assert cli.main(["report", "runs/log", "--card", "--out", "card.html", "--data", "other.npz"]) == 0
    assert "learned from log.npz; judged on other.npz, another log," in Path("card.html").read_text()


def test_a_diverged_policy_is_set_aside(trained) -> None:
    data, folder, _ = trained
    run = sbac.Run.load(folder)
    run.policies[0].arrays["policy/weights/0"][:] = np.nan
    found = select(run, data, effort=TINY, beside=())
    assert found.table[-1]["set_aside"] and found.table[-1]["value"] is None
    assert found.table[-1]["warnings"] == ["its training has diverged"]
    assert found.best in (run.policies[1], found.clone)


def test_the_presets_setting_comes_from_the_method(trained) -> None:
    quick = find("td3-bc").presets["quick"]
    setting = preset_setting(trained[2].record)
    assert setting["alpha"] == 2.5 and setting["learning_rate"] == quick["learning_rate"]  # by default, and its own


def test_trying_takes_up_the_choice_that_stands_in_the_folder(choice, trained, tmp_path, monkeypatch, capsys) -> None:
    """The second command computes no estimate again, and plays only what is left of the budget."""
    from sbac import cli
    from sbac.runs import Episodes as Evaluation

    folder = tmp_path / "run"
    shutil.copytree(trained[1], folder)
    write_choice(folder, choice.record, choice.clone)
    played: list[int] = []

    class Played:
        def __init__(self, source) -> None:
            assert source == "Hopper-v4"

        def __call__(self, policy, episodes, seed) -> Evaluation:
            played.append(seed)
            return Evaluation("Hopper-v4", [float(len(played))], [1], None, {})

    monkeypatch.setattr("sbac.trust.trials.Evaluator", Played)
    monkeypatch.setattr("sbac.cli.select.choose", None)
    words = ["select", str(folder), "--env", "Hopper-v4", "--try"]
    assert cli.main([*words, "3"]) == 0
    assert cli.main([*words, "5"]) == 0
    assert played == [20_000, 20_001, 20_002, 20_003, 20_004]
    assert "after 5 episodes" in capsys.readouterr().out
    assert len((folder / "trials.jsonl").read_text().splitlines()) == 5


def test_what_was_tried_last_is_what_every_command_takes(choice, trained, tmp_path, capsys) -> None:
    from sbac import cli

    folder, run, other = tmp_path / "run", trained[2], choice.candidates[1].label
    shutil.copytree(trained[1], folder)
    write_choice(folder, choice.record, choice.clone)
    rows = [{"label": choice.label, "returns": [1.0]}, {"label": other, "returns": [2.0]}]
    (folder / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["select", str(folder), "--env", "Hopper-v4", "--try", "2"]) == 0
    record = read_choice(folder, run.policies)
    assert record is not None and record.label == other != choice.label and "2 real episodes" in record.reason
    capsys.readouterr()
    assert cli.main(["export", str(folder), "--out", str(tmp_path / "policy.onnx")]) == 0
    assert other in capsys.readouterr().out
    assert cli.main(["compare", str(folder), str(folder)]) == 0
    assert ["policy", other, other] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_trial_of_another_policy_is_refused(trained, tmp_path) -> None:
    policies = {policy.config["label"]: policy for policy in trained[2].policies}
    label, policy = next(iter(policies.items()))
    for said, fits in ((policy.hash, True), (policy.hash[::-1], False)):
        (tmp_path / "trials.jsonl").write_text(json.dumps({"label": label, "returns": [1.0], "policy": said}) + "\n")
        if fits:
            assert read_trials(tmp_path, policies, [label]) == {label: [1.0]}
        else:
            with pytest.raises(sbac.UserError, match="line 1: another policy than the run's"):
                read_trials(tmp_path, policies, [label])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["select", "--env", "Hopper-v4"], "--env: only read with --try"),
        (["report", "--card", "--developed-on", "results"], "--developed-on: not read with --card"),
    ],
)
def test_what_is_not_read_is_refused(trained, capsys, words, problem) -> None:
    from sbac import cli

    assert cli.main([words[0], str(trained[1]), *words[1:]]) == 2
    assert problem in capsys.readouterr().err
