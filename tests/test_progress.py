"""What a long command says: a bar where it was asked for, plain lines in a pipe."""

import time

import pytest

from sbac import progress
from sbac.progress import Progress, Stretch


def work(shown: bool | None) -> None:
    with Progress(shown) as bar:
        bar.begin("estimate (4 runs)", 100, done=10)
        bar.reach(100, "score 12.3")
        bar.begin("steps", 50)
        for done in range(10, 60, 10):
            bar.reach(done)


def test_the_bar_shows_every_stretch_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    work(True)
    printed = capsys.readouterr()
    assert not printed.out
    for text in ("estimate (4 runs)", "100/100", "score 12.3", "50/50"):
        assert text in printed.err


@pytest.mark.parametrize("shown", [False, None])
def test_what_is_done_in_seconds_says_nothing_in_a_pipe(shown: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    work(shown)
    assert capsys.readouterr() == ("", "")


def test_a_long_command_says_plain_lines_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE", 0.05)
    monkeypatch.setattr(progress, "EVERY_LINE", 0.05)
    monkeypatch.setattr(progress, "SHORTEST", 0.001)
    said = ""

    def wait_for(text: str) -> None:
        nonlocal said
        for _ in range(500):
            said += capsys.readouterr().err
            if text in said:
                return
            time.sleep(0.02)
        raise AssertionError(f"{text!r} is not in {said!r}")

    with Progress() as bar:
        bar.begin("improve", 1000)
        wait_for("improve: compiling ...\n")
        bar.reach(250, "score 12.3")
        wait_for("improve: 250 of 1,000 steps, score 12.3\n")
        time.sleep(0.01)
        bar.reach(500)
        wait_for(" left\n")
    assert "improve: 500 of 1,000 steps, " in said and " steps/s, " in said


@pytest.mark.parametrize(
    ("steps", "reached", "said"),
    [
        (10_000, [], "compiling ..."),
        (10_000, [(100.0, 1000), (101.0, 2000), (102.0, 3000)], "3,000 of 10,000 steps, 1,000 steps/s, 0:07 left"),
        (80, [(10.0, 1), (10.001, 3)], "3 of 80 steps"),  # two that were at hand
        (80, [(10.0, 1), (10.001, 3), (110.0, 23)], "23 of 80 steps, 0.2 steps/s, 4:19 left"),
    ],
)
def test_the_rate_does_not_count_compiling(
    steps: int, reached: list[tuple[float, int]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    now = Stretch("improve", steps, 0)
    for clock[0], done in reached:
        now.reach(done, "")
    assert now.text() == f"improve: {said}"
