"""Numbers and tables as text."""

from sbac.text import counted, markdown_table, number, percent, setting_label, setting_text, signed, text_table, within


def test_numbers() -> None:
    assert number(-0.04) == "0.0" and number(1.25, 0.5) == "1.2 ± 0.5" and number(0.125, digits=2) == "0.12"
    assert signed(2.0) == "+2.0" and signed(-2.0, 0.25) == "-2.0 ± 0.2"
    assert within(0.5, None, None, 2) == "0.50" and within(3.0, 2.0, 4.0) == "3.0 [2.0, 4.0]"
    assert percent(-12.4) == "-12" and percent(None) == "none"
    assert counted(1, "cell") == "1 cell" and counted(0, "cell") == "0 cells"


def test_settings() -> None:
    """Files are named after `setting_label`, so no digit may be lost."""
    assert [setting_text(value) for value in (2.0, 1e-05, "tf32", 8, [8, 8])] == ["2", "1e-05", "tf32", "8", "[8, 8]"]
    assert [setting_label(value) for value in (2.0, 0.1234567891, (8, 16), True)] == [
        "2",
        "0.1234567891",
        "8x16",
        "True",
    ]


def test_tables_are_aligned() -> None:
    head, rows = ["", "first", "x"], [["name", "1", "2.5"], ["n", "100", ""]]
    assert text_table(head, rows) == "      first  x\n--------------\nname  1      2.5\nn     100"
    assert text_table(head, rows, rule=False).splitlines()[1] == "name  1      2.5"
    assert text_table(head, rows, numbers=True).splitlines()[0] == "      first    x"
    assert text_table(head, rows, numbers=True).splitlines()[2] == "name      1  2.5"
    assert markdown_table(["a", "b|c"], [["<x>", "1"]]) == "| a | b\\|c |\n| --- | ---: |\n| &lt;x> | 1 |"
