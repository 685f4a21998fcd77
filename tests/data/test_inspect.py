"""data info, check and list."""

import numpy as np
import pytest

from sbac.data import Dataset, load
from sbac.data.inspect import examine, features, info, listing, saturation
from tests.data.logs import make_log
from tests.data.test_formats import write_hdf5, write_npz


def test_summary_of_a_known_log(plain):
    plain["actions"] *= 0.9
    plain["actions"][:10, 0] = 1.0
    plain["actions"][10:15, 0] = -1.0
    plain["observations"][:, 3] = 7.0
    data = Dataset(**plain, task="hopper-medium-v2")
    text = info(data)
    assert "50; s' is known for 47, a' for 47" in text and "2 terminals, 3 time limits" in text
    assert "5 of 1 to 20 steps, median 10" in text and "task hopper-medium-v2" in text and "normalised score" in text
    assert saturation(data)[0] == pytest.approx(15 / 50)
    episode = data.observations[:, 0]
    np.testing.assert_allclose(features(data)[0], [0, episode.mean(), episode.std(), 4], rtol=1e-5)
    np.testing.assert_allclose(features(data)[3], [7, 7, 0, 7])


@pytest.mark.parametrize("rewards", [[0, 0, 0], [1e30, 1e30, 1e30]])
def test_info_of_returns_that_hardly_differ(rewards):
    zeros = np.zeros((3, 1))
    assert "returns" in info({"observations": zeros, "actions": zeros, "rewards": rewards, "terminals": [1, 1, 1]})


def problems(path):
    return examine(path).problems


def test_check_names_every_problem_with_its_row(plain, tmp_path):
    assert problems(write_npz(tmp_path, plain)) == []
    plain["rewards"][[3, 17]] = np.nan
    plain["actions"][8, 1] = 2.0
    plain["observations"][4, 2] = np.inf
    assert [line.split(";")[0] for line in problems(write_npz(tmp_path, plain))] == [
        "observations: feature 2: 1 missing or not finite, the first in row 4",
        "rewards: 2 missing or not finite, the first in rows 3, 17",
        "actions: feature 1: 1 out of bounds, such as 2, the first in row 8",
    ]
    plain["rewards"][:] = np.nan
    assert (
        "rewards: 50 missing or not finite, the first in rows 0, 1, 2, 3, 4 ...; "
        in problems(write_npz(tmp_path, plain))[1]
    )
    assert problems(tmp_path / "none.npz") == [f"{tmp_path / 'none.npz'}: no such file or folder"]
    # one problem does not hide the next
    plain["rewards"], plain["timeouts"] = np.where(np.arange(50) == 9, np.nan, 0.0), np.zeros(49)
    told = problems(write_npz(tmp_path, plain))
    starts = ["timeouts: 49 rows", "observations: feature 2: 1", "rewards: 1 missing", "actions: feature 1: 1 out"]
    assert len(told) == 4 and all(line.startswith(start) for line, start in zip(told, starts, strict=True)), told


def test_oddities_are_noted_but_accepted(log, tmp_path):
    log["timeouts"][9] = True
    log["next_observations"][25] += 1.0
    log["observations"][:, 3] = 2.5
    log["next_observations"][:, 3] = 2.5
    findings = examine(write_npz(tmp_path, log))
    assert findings.problems == []
    notes = "\n".join(findings.notes)
    assert "1 row flagged as terminal and as time limit; taken as a time limit, the first: 9" in notes
    assert "1 row inside an episode with an s' that is not the observation of the next row, the first: 25" in notes
    assert "row 49: the last episode is unfinished" in notes
    assert "1 row of episodes of one step, the first: 10" in notes
    assert "feature 3 is 2.5 in every row" in notes
    del log["timeouts"]
    assert "timeouts: not given" in examine(write_npz(tmp_path, log)).notes[0]


def test_listing(plain, tmp_path, monkeypatch):
    monkeypatch.setenv("SBAC_DATA", str(tmp_path / "d"))
    Dataset(**plain).save(tmp_path / "d" / "hopper-medium-made.npz")
    write_hdf5(tmp_path, plain).rename(tmp_path / "d" / "hopper_medium-v2.hdf5")
    here, rest = listing().split("can be made")
    makeable, absent = rest.split("must be downloaded")
    assert "hopper-medium-made" in here and "hopper-medium-v2" in here
    assert "hopper-medium-made" not in makeable and makeable.count("-made") == 14 + 9
    assert makeable.count("-td3-made") == 9
    assert "hopper-medium-v2" not in absent and absent.count("-v2.hdf5") == 14 and "door-human-v1.hdf5" in absent


def test_listing_names_installed_minari_datasets(minari_root):
    assert "D4RL/door/human-v2" in listing().split("can be made")[0]


def test_rows_are_counted_and_not_only_kinds(plain, tmp_path):
    plain["rewards"][:30] = np.nan
    plain["actions"][25:35, 0] = 2.0
    findings = examine(write_npz(tmp_path, plain))
    assert (findings.rows, findings.wrong_rows, findings.problems_found) == (50, 35, 40)
    plain["timeouts"] = np.zeros(49)
    findings = examine(write_npz(tmp_path, plain))
    assert (findings.wrong_rows, findings.problems_found) == (35, 41)


@pytest.mark.parametrize("last", ["terminal", "nothing"])
def test_time_limits_flagged_as_terminals_are_doubted(last, tmp_path):
    log = make_log([20, 20, 20, 20 if last == "terminal" else 7], ["terminal"] * 3 + [last])
    del log["next_observations"]
    path = write_npz(tmp_path, log)
    count = 4 if last == "terminal" else 3
    with pytest.warns(UserWarning, match=rf"all {count} episodes have 20 steps and end in a terminal; .*horizon=20"):
        load(path)
    assert any("end in a terminal" in warning for warning in examine(path).warnings)
    data = load(path, horizon=20)  # with or without a column of time limits
    assert not data.terminals.any() and len(data.episodes) == 4
    del log["timeouts"]
    assert load(write_npz(tmp_path, log), horizon=20).hash == data.hash


def test_a_given_horizon_counts_from_the_last_end_of_an_episode():
    log = make_log([7, 20, 5, 20], ["timeout", "terminal", "terminal", "terminal"])
    data = load(log, horizon=20)
    assert np.flatnonzero(data.timeouts).tolist() == [6, 26, 51] and np.flatnonzero(data.terminals).tolist() == [31]


@pytest.mark.parametrize(
    ("lengths", "ends"),
    [
        ([20, 20], ["terminal", "timeout"]),
        ([20, 19], ["terminal"] * 2),
        ([20], ["terminal"]),
        ([1, 1], ["terminal"] * 2),
    ],
)
def test_other_ends_are_not_doubted(lengths, ends):
    assert load(make_log(lengths, ends)).terminals.any()  # a warning would be an error here


def test_info_prints_bounds_and_the_environment(plain):
    data = Dataset(**plain, action_low=[-1, -2], action_high=[1, 2], environment="Some-v0")
    text = info(data)
    assert text.startswith("arrays (user)") and "normalised score" not in text
    assert "action bounds   -1 to 1, -2 to 2" in text and "environment     Some-v0" in text
    assert "action bounds   -1 to 1\n" in info(plain)
