"""Records from JSON: right values come back, wrong ones are named in one line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pytest

from sbac.errors import UserError
from sbac.records import Settings, as_json, parse, rest


@dataclass(frozen=True)
class Point:
    x: float
    name: str | None = None


@dataclass(frozen=True)
class Drawing:
    kind: Literal["line", "area"]
    points: list[Point]
    sizes: tuple[int, ...]
    by_name: Mapping[str, Point]
    shown: bool
    values: list[float | None]
    setting: Settings


@dataclass(frozen=True)
class Open:
    seed: int
    setting: Settings = rest()


WHOLE = {
    "kind": "line",
    "points": [{"x": 1.5, "name": "a"}, {"x": 2}],
    "sizes": [3, 4],
    "by_name": {"b": {"x": 0.25}},
    "shown": True,
    "values": [1.0, None],
    "setting": {"alpha": 0.5, "hidden": [8, 8], "entropy": None},
}


def test_what_is_written_comes_back() -> None:
    drawing = parse(Drawing, WHOLE, "file")
    assert drawing.points == [Point(1.5, "a"), Point(2.0)] and drawing.sizes == (3, 4)
    assert drawing.by_name["b"] == Point(0.25) and drawing.values == [1.0, None]
    assert drawing.setting == WHOLE["setting"]
    assert parse(Drawing, as_json(drawing), "file") == drawing
    assert as_json(drawing.points) == [{"x": 1.5, "name": "a"}, {"x": 2.0}]  # a default of None is left out


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"shown": 1}, "file: shown is 1; expected true or false"),
        ({"kind": "circle"}, "file: kind is 'circle'; expected one of line, area"),
        ({"points": {}}, "file: points is {}; expected a list"),
        ({"points": [{"x": 1.0}, {"name": "a"}]}, "file: points[1].x is missing"),
        ({"points": [{"x": "1"}]}, "file: points[0].x is '1'; expected a number"),
        ({"points": [{"x": 10**400}]}, f"file: points[0].x is 1{'0' * 36}...; expected a number that a float can hold"),
        ({"points": [{"x": True}]}, "file: points[0].x is True; expected a number"),
        ({"points": [{"x": 1.0, "name": 3}]}, "file: points[0].name is 3; expected text"),
        ({"points": [7]}, "file: points[0] is 7; expected an object"),
        ({"sizes": [1, 2.5]}, "file: sizes[1] is 2.5; expected a whole number"),
        ({"sizes": [1, 2**63]}, "file: sizes[1] is 9223372036854775808; expected a whole number below 2^63"),
        ({"sizes": [True]}, "file: sizes[0] is True; expected a whole number"),
        ({"by_name": []}, "file: by_name is []; expected an object"),
        ({"by_name": {"b": {"x": None}}}, "file: by_name.b.x is None; expected a number"),
        ({"values": [None, "nan"]}, "file: values[1] is 'nan'; expected a number"),
        ({"setting": 3}, "file: setting is 3; expected an object"),
        ({"shown": "long" * 20}, f"file: shown is 'longlong{'long' * 7}...; expected true or false"),
    ],
)
def test_a_wrong_value_is_named(damage: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as error:
        parse(Drawing, WHOLE | damage, "file")
    assert str(error.value) == said


def test_a_missing_field_and_no_object() -> None:
    with pytest.raises(UserError, match=r"^file: kind is missing$"):
        parse(Drawing, {}, "file")
    with pytest.raises(UserError, match=r"^file: \[\]; expected an object$"):
        parse(Drawing, [], "file")


def test_unknown_fields_are_ignored_or_taken_by_the_field_for_the_rest() -> None:
    assert parse(Point, {"x": 1.0, "later": True}, "file") == Point(1.0)
    found = parse(Open, {"seed": 3, "alpha": 0.5, "hidden": [8]}, "file")
    assert found == Open(3, {"alpha": 0.5, "hidden": [8]})
    assert list(as_json(found).items()) == [("seed", 3), ("alpha", 0.5), ("hidden", [8])]


def test_only_what_json_has_is_written() -> None:
    with pytest.raises(TypeError, match="set"):
        as_json(Open(1, {"alpha": {1}}))  # pyright: ignore[reportArgumentType]
