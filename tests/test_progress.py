"""The progress bar: shown when asked for, silent in a pipe."""

import pytest

from sbac.progress import Progress


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
def test_without_a_terminal_it_is_silent(shown: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    work(shown)
    assert capsys.readouterr() == ("", "")
