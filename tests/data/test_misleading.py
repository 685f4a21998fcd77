"""What misleads in a log: each fault put into a log that has none, and the line that it gives."""

import functools
import re
from collections.abc import Callable

import numpy as np
import pytest

from sbac.cli import main
from sbac.data import Dataset
from sbac.data.misleading import RULES, SAMPLED, STRETCH, View, misleading

LENGTHS = [100, 100, 60, 100, 100, 85, 100, 100, 100, 72] * 3
ROWS = sum(LENGTHS)
FIRST = np.cumsum([0, *LENGTHS])
LAST = FIRST[1:] - 1


def sound():
    """A log of its own for every test."""
    return {name: column.copy() for name, column in tanks().items()}


@functools.cache
def tanks():
    """Two tanks and a valve. Episodes end at 100 steps, or early when a tank runs over."""
    rng = np.random.default_rng(0)
    levels, valve = np.empty((ROWS, 2), np.float32), rng.uniform(-0.9, 0.9, (ROWS, 1)).astype(np.float32)
    noise = 0.1 * rng.normal(size=(ROWS, 2))
    for row in range(ROWS):
        start = row in FIRST
        before = np.array([4.0, 6.0]) if start else levels[row - 1]
        levels[row] = 5 + 0.9 * (before - 5) + (0 if start else valve[row - 1]) + noise[row]
    ended = np.isin(np.arange(ROWS), LAST[np.array(LENGTHS) < 100])
    return {
        "observations": levels,
        "actions": valve,
        "rewards": (1 - np.abs(levels[:, 0] - 5)).astype(np.float32),
        "terminals": ended,
        "timeouts": np.isin(np.arange(ROWS), LAST) & ~ended,
    }


def few(log):
    return {name: column[:900] for name, column in log.items()}


def no_episodes(log):
    return log | {"terminals": np.zeros(ROWS, bool), "timeouts": np.zeros(ROWS, bool)}


def two_devices(log):
    """Their rows in turns, as one episode."""
    order = np.column_stack([np.arange(600), np.arange(1300, 1900)]).ravel()
    return {name: log[name][order] * (log[name].dtype != bool) for name in log}


def a_valve_that_stays(log):
    log["actions"][np.arange(ROWS) % 50 > 0] = 0.25
    return log


def a_valve_that_stays_open(log):
    log["actions"][np.arange(ROWS) % 50 > 0] = 1.0
    return log


def bounds_of_another_unit(log):
    return log | {"action_low": -100, "action_high": 100}


def all_or_nothing(log):
    return log | {"actions": np.sign(log["actions"])}


def limits_as_terminals(log):
    return log | {"terminals": log["terminals"] | log["timeouts"], "timeouts": np.zeros(ROWS, bool)}


def no_ends(log):
    return log | {"terminals": np.zeros(ROWS, bool), "timeouts": log["terminals"] | log["timeouts"]}


def an_episode_twice(log):
    for column in log.values():
        column[FIRST[7] : FIRST[8]] = column[FIRST[3] : FIRST[4]]
    return log


def a_prize(log):
    log["rewards"][FIRST[4] : FIRST[5]] += 40
    return log


def grams(log):
    log["observations"][FIRST[5] : FIRST[6], 1] *= 1000
    return log


def tons(log):
    log["observations"][FIRST[5] : FIRST[6], 1] /= 1000
    return log


def with_column(log, column):
    return log | {"observations": np.column_stack([log["observations"], column]).astype(np.float32)}


def a_clock(log):
    return with_column(log, np.concatenate([np.arange(length) for length in LENGTHS]) / 12)


def a_clock_of_the_day(log):
    return with_column(log, np.arange(7, ROWS + 7) % 24)


def only_every_other_column_of_the_state(log):
    """A pendulum's angle without its speed."""
    angle, speed = np.zeros(ROWS), 0.0
    for row in range(ROWS):
        speed = 0.0 if row in FIRST else speed - 0.1 * angle[row - 1] + 0.1 * log["actions"][row - 1, 0]
        angle[row] = 1.0 if row in FIRST else angle[row - 1] + 0.3 * speed
    return log | {"observations": angle[:, None].astype(np.float32)}


def millions(log):
    return log | {"rewards": log["rewards"] * 2e6}


def millionths(log):
    return log | {"rewards": log["rewards"] * 2e-6}


def shuffled(log):
    rng = np.random.default_rng(1)
    order = np.concatenate([rng.permutation(np.arange(*FIRST[i : i + 2])) for i in range(len(LENGTHS))])
    return log | {name: log[name][order] for name in ("observations", "actions", "rewards")}


def late_rows(log):
    log = a_clock(log)
    for row in FIRST[:-1] + 30:
        log["observations"][[row, row + 3]] = log["observations"][[row + 3, row]]
    return log


def states_of_other_rows(log):
    states = np.random.default_rng(1).permutation(log["observations"])
    return log | {"next_observations": states}


def one_row_each(log):
    return log | {"terminals": np.zeros(ROWS, bool), "timeouts": np.ones(ROWS, bool)}


def a_number_for_nothing(log):
    log["observations"][[150, 700, 701], 1] = -999
    return log


def a_clock_with_gaps(log):
    log = a_clock(log)
    log["observations"][[150, 700, 701], 2] = -999
    return log


def meals_with_gaps(log):
    """A column that is mostly zero."""
    log = meals(log)
    log["observations"][[150, 700, 701], 2] = -999
    return log


def a_number_nearby(log):
    """Within twenty deviations, but alone."""
    log["observations"][[150, 700], 1] = 20
    return log


def a_slipped_point(log):
    log["observations"][200, 0] *= 100
    return log


def a_wrong_reward(log):
    log["rewards"][333] = -40
    return log


FAULTS: dict[str, list[tuple[Callable, str]]] = {
    "few rows": [(few, "the log has 900 rows: .*gather 1,000 at least")],
    "no episodes": [(no_episodes, r"all 2,751 rows are one episode: .*--columns episode=COLUMN")],
    "actions hardly vary": [
        (a_valve_that_stays, "a0: 98 % of the actions are 0.25: "),
        (a_valve_that_stays_open, "a0: 98 % of the actions are 1: "),
    ],
    "bounds too wide": [
        (bounds_of_another_unit, "a0: its bounds, -100 to 100, are 111 times as wide as .*--action-low")
    ],
    "actions at the bounds": [(all_or_nothing, "a0: 100 % of the actions lie at a bound, -1 or 1: ")],
    "time limits as terminals": [
        (limits_as_terminals, "21 of 30 episodes end in a terminal after 100 .*--horizon 100")
    ],
    "no ends": [(no_ends, "no row is terminal, but episodes have 60 to 100 steps: .*--columns terminals=COLUMN")],
    "repeated episodes": [(an_episode_twice, "1 of 30 episodes repeat an earlier one, the first: row 645; leave")],
    "one episode pays": [(a_prize, "one of 30 episodes, from row 360 on, has .. % of the log's return: ")],
    "other units": [
        (
            grams,
            "o1: in 1 episode of 30 its values are [0-9,]+ times larger .* the first: row 460; look at their units",
        ),
        (
            tons,
            "o1: in 1 episode of 30 its values are [0-9,]+ times smaller .* the first: row 460; look at their units",
        ),
    ],
    "counts time": [(a_clock, "o2 counts time: leave it out")],
    "memory": [
        (only_every_other_column_of_the_state, "two rows tell the next o0 with . % of one row's error: "),
        (two_devices, "two rows tell the next o[01] with [0-9]+ % of one row's error: .*name the devices"),
    ],
    "size of rewards": [
        (millions, r"rewards are about 2e\+06: .*--columns rewards=1e-06\*COLUMN"),
        (millionths, r"rewards are about 2e-06: .*--columns rewards=1e\+06\*COLUMN"),
    ],
    "rows out of order": [
        (shuffled, "no row tells anything of the next one: rows may be out of order; .*time=COLUMN"),
        (late_rows, "o2 counts time, but goes back inside episodes: rows are out of order"),
        (states_of_other_rows, "in 100 % of the rows the stored next state is not the next row's: "),
        (one_row_each, "2,751 of 2,751 episodes have one row: rows are out of order"),
    ],
    "far values": [
        (
            a_number_for_nothing,
            r"o1: 3 values \(-999\) far from the others .* the first: row 150, row 700, row 701; if",
        ),
        (a_clock_with_gaps, r"o2: 3 values \(-999\) far from the others"),
        (meals_with_gaps, r"o2: 3 values \(-999\) far from the others \(0 to 1..\)"),
        (a_number_nearby, r"o1: 2 values \(20\) far from the others .* the first: row 150, row 700; if"),
        (a_slipped_point, r"o0: 1 value \(\d+.*\) far from the others .* the first: row 200; .*--missing"),
        (a_wrong_reward, r"rewards: 1 value \(-40\) far from the others .* the first: row 333; "),
    ],
}


def test_every_rule_has_a_fault_and_a_sound_log_has_none():
    assert FAULTS.keys() == RULES.keys()
    assert misleading(Dataset(**sound())) == []


@pytest.mark.parametrize(("fault", "sentence"), [case for cases in FAULTS.values() for case in cases])
def test_a_fault_gives_its_line_and_no_other(fault, sentence):
    told = misleading(Dataset(**fault(sound())))
    assert len(told) == 1, told
    assert re.match(sentence, told[0]), told


def a_penalty_at_the_end(log):
    log["rewards"][log["terminals"]] = -100
    return log


def an_excursion(log):
    """Far away, but by steps: a process may go there."""
    log["observations"][FIRST[3] + 20 : FIRST[3] + 60, 0] += 3 * np.concatenate([np.arange(20), np.arange(20, 0, -1)])
    return log


def doses(log):
    """Mostly nothing, which is the lower bound."""
    doses = np.where(np.arange(ROWS)[:, None] % 10 == 0, np.abs(log["actions"]), 0)
    return log | {"actions": doses, "action_low": 0}


def meals(log):
    return with_column(log, np.where(np.arange(ROWS) % 30 == 0, 20 + np.arange(ROWS) % 97, 0))


def a_switch(log):
    return with_column(log, np.arange(ROWS) % 40 == 7)


def a_mode_of_its_own(log):
    """A column of few numbers, one of them rare."""
    return with_column(log, np.where(np.arange(ROWS) % 300 == 7, 90, np.arange(ROWS) // 3 % 3))


def a_curved_process(log):
    """A pendulum with its speed: two rows help a straight line a little, and nobody else."""
    angle, speed = np.zeros(ROWS), np.zeros(ROWS)
    for row in range(ROWS):
        if row in FIRST:
            angle[row] = np.sin(row)
            continue
        speed[row] = speed[row - 1] - 0.3 * np.sin(angle[row - 1]) + log["actions"][row - 1, 0]
        angle[row] = angle[row - 1] + 0.3 * speed[row]
    return log | {"observations": np.column_stack([np.sin(angle), np.cos(angle), speed]).astype(np.float32)}


def an_unfinished_episode(log):
    return {name: column[: ROWS - 20] for name, column in log.items()}


HARMLESS = [
    doses,
    meals,
    a_penalty_at_the_end,
    an_excursion,
    a_clock_of_the_day,
    a_switch,
    a_mode_of_its_own,
    a_curved_process,
    an_unfinished_episode,
]


@pytest.mark.parametrize("change", HARMLESS)
def test_what_is_no_fault_gives_no_line(change):
    assert misleading(Dataset(**change(sound()))) == []


TAILS: dict[str, Callable] = {
    "normal": lambda random, size: random.normal(size=size),
    "squared normal": lambda random, size: random.normal(size=size) ** 2,
    "exponential": lambda random, size: random.exponential(size=size),
    "lognormal": lambda random, size: random.lognormal(size=size),
}


@pytest.mark.parametrize("tail", TAILS)
def test_a_long_tail_is_no_fault_but_a_number_for_nothing_and_another_unit_in_it_are(tail):
    """A hundred columns, 50 episodes of 60 rows: of lognormal columns one in 500 is expected to raise an alarm."""
    rows, columns, random = 3000, 100, np.random.default_rng(0)
    drawn = TAILS[tail](random, (rows, columns))
    rest = random.uniform(-1, 1, (rows, 1)), np.ones(rows), np.zeros(rows, bool), np.arange(rows) % 60 == 59

    def told(observations):
        view = View(Dataset(observations, *rest), "row {}".format)
        units = [line for line in RULES["other units"](view) if not line.startswith("95 more columns")]
        return {name: rows.tolist() for name, (rows, _, _) in view.far.items()}, units

    assert told(drawn) == ({}, [])
    for number in (-999, 9999, 1234.5):
        faulty = drawn.copy()
        faulty[700] = number
        assert told(faulty) == ({f"o{column}": [700] for column in range(columns)}, [])
    for factor, word in ((1000, "larger"), (0.001, "smaller")):
        faulty = drawn.copy()
        faulty[600:660] *= factor
        far, units = told(faulty)
        assert (
            far == {} and len(units) == 5 and all(f"{word} than in the others, the first: row 600" in u for u in units)
        )


def as_csv(path, log, rows):
    head = "episode,obs_0,obs_1,action,reward,terminal"
    episode = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    columns = [episode, *log["observations"].T, log["actions"][:, 0], log["rewards"], log["terminals"].astype(int)]
    lines = [",".join(f"{cell:.9g}" for cell in row) for row in np.column_stack(columns)[rows]]
    path.write_text("\n".join([head, *lines]) + "\n")
    return str(path)


def test_check_prints_warnings_by_the_lines_of_the_files(tmp_path, capsys):
    """The log in one file, and in two. A warning is no problem."""
    log = a_number_for_nothing(sound())
    whole = as_csv(tmp_path / "log.csv", log, slice(None))
    assert main(["data", "check", whole]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert len(told) == 1 and "the first: line 152, line 702, line 703; if" in told[0]
    halves = [
        as_csv(tmp_path / "a.csv", log, slice(None, FIRST[7])),
        as_csv(tmp_path / "b.csv", log, slice(FIRST[7], None)),
    ]
    assert main(["data", "check", *halves]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert len(told) == 1, told  # each half alone has fewer rows than a log needs
    assert f"the first: {halves[0]}, line 152, {halves[1]}, line {702 - FIRST[7]}" in told[0]


def test_check_refuses_files_that_do_not_go_together(tmp_path, capsys):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("obs:heat,action,reward\n1,0.5,1\n2,0.25,1\n")
    paths[1].write_text("obs:flow,action,reward\n1,0.5,1\n2,0.25,1\n")
    assert main(["data", "check", *map(str, paths)]) == 2
    assert "b.csv: its columns are not those of a.csv" in capsys.readouterr().out


def test_a_long_log_is_sampled():
    """What is asked of a log more than once is asked of a bounded number of rows."""
    rows = 3 * SAMPLED
    wide = Dataset(np.zeros((rows, 1)), np.zeros((rows, 1)), np.zeros(rows), np.zeros(rows, bool))
    drawn = sum(end - begin for begin, end in View(wide, str).stretches)
    assert SAMPLED <= drawn < SAMPLED + STRETCH
