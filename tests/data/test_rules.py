"""Rules over columns: what they hold for, in numpy and in JAX, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.data.rules import names_in, parse
from sbac.errors import UserError

COLUMNS = {
    "height": np.array([0.5, 0.9, 0.9, 0.5]),
    "angle": np.array([0.0, 0.0, -2.0, 2.0]),
    "glucose [mg/dl]": np.array([60.0, 70.0, 80.0, 181.0]),
    "o0": np.array([1.0, 2.0, 3.0, 4.0]),
    "größe": np.array([-1.0, 0.0, 1.0, 2.0]),
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("height < 0.8", [1, 0, 0, 1]),
        ("0.8 > height", [1, 0, 0, 1]),
        ("height < 0.8 or angle > 1", [1, 0, 0, 1]),
        ("height<.8 and angle>1", [0, 0, 0, 1]),
        ("abs(angle) >= 2e0", [0, 0, 1, 1]),
        ("`glucose [mg/dl]` < 70", [1, 0, 0, 0]),
        ("\"glucose [mg/dl]\" <= 70 or 'glucose [mg/dl]' > 180", [1, 1, 0, 1]),
        ("o0 == 3", [0, 0, 1, 0]),
        ("o0 != +3", [1, 1, 0, 1]),
        ("größe > -0.5", [0, 1, 1, 1]),
        # `and` binds closer than `or`; parentheses say otherwise
        ("o0 == 1 or o0 == 2 and angle > 1", [1, 0, 0, 0]),
        ("(o0 == 1 or o0 == 2) and angle > 1", [0, 0, 0, 0]),
        ("((o0 <= 2)) and (angle > -1 or height > 9)", [1, 1, 0, 0]),
        ("3 <= o0", [0, 0, 1, 1]),
    ],
)
def test_a_rule_holds_for_numpy_and_jax_alike(text, holds) -> None:
    rule = parse(text, COLUMNS)
    np.testing.assert_array_equal(rule.holds(COLUMNS), np.array(holds, bool))
    compiled = jax.jit(rule.holds)({name: jnp.asarray(values) for name, values in COLUMNS.items()})
    np.testing.assert_array_equal(compiled, np.array(holds, bool))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hight < 1", "unknown column 'hight'; did you mean 'height'?"),
        ("abs(angel) > 1", "unknown column 'angel'; did you mean 'angle'?"),
        ("glucose [mg/dl] < 70", "cannot read '[mg/dl] < 70'"),
        ("", "it ends too early"),
        ("height", "it ends too early"),
        ("height <", "it ends too early"),
        ("height < angle", "cannot read 'angle'"),
        ("height < 1 angle > 2", "cannot read 'angle > 2'"),
        ("0.5 < height < 1", "cannot read '< 1'"),
        ("(height < 1", "it ends too early"),
        ("height < 1)", "cannot read ')'"),
        ("height < 1e999", "cannot read '1e999'"),
        ("height < 70mg", "cannot read '70mg'"),
        ("height << 1", "cannot read '< 1'"),
        ("not height < 1", "unknown column 'not'"),
        ("body height < 1", "a name of several words stands in `backticks`"),
        ("__import__('os').system('x') > 1", "unknown column '__import__'"),
        ("height * 2 > 1", "cannot read '* 2 > 1'"),
        ("(" * 50 + "height < 1" + ")" * 50, "at most 40 parentheses"),
        ("height < 1 or " * 200 + "height < 1", "at most 2000 letters"),
    ],
)
def test_what_cannot_be_read_gets_one_line(text, words) -> None:
    with pytest.raises(UserError, match="^ends ") as error:
        parse(text, COLUMNS, "ends")
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["hight and angle < 1", "hight < 1", "hight"])
def test_backticks_are_named_only_where_a_name_could_go_on(text) -> None:
    with pytest.raises(UserError, match=r"did you mean 'height'\?$"):
        parse(text, COLUMNS, "ends")


def test_the_columns_that_are_read() -> None:
    assert parse("o0 > 1 and abs(angle) < 2 or o0 < 0", COLUMNS).columns == ("o0", "angle")
    text = "`glucose [mg/dl]` < 70 or in_range == 1"
    assert {text, "glucose [mg/dl]", "in_range"} <= set(names_in(text))
    assert names_in("share in range")[0] == "share in range"
