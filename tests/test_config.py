"""Config fields: what they say of themselves, what they refuse, and the one flat name that each has outside."""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pytest

import sbac
from sbac.algorithms import REGISTRY, find
from sbac.algorithms.base import Algorithm
from sbac.algorithms.sbac import SBACConfig
from sbac.cli import main
from sbac.config import Config, Options, changed, config, fields_of, nested, per_policy, rate, shared, values_of
from sbac.errors import UserError
from sbac.training.grid import members, stack


@config
class Inner(Options):
    kind: Literal["one", "two"] = shared("one", "Which one.")
    size: float = per_policy(1.0, "How large.", above=0)


@config
class Outer(Config):
    steps: tuple[int, ...] = (10,)
    batch_size: int = 8
    inner: Inner = nested(Inner(kind="two"), prefix="inner_", group="the ratio w")
    learning_rate: float = rate(0.1, "Learning rate.")


# --- Ranges ---------------------------------------------------------------------------------------------------------

OUT_OF_RANGE = [
    ("iql", "expectile", 7, "above 0 and below 1"),
    ("iql", "expectile", 1.0, "above 0 and below 1"),
    ("iql", "dropout", 1.0, "of at least 0 and below 1"),
    ("bear", "warm_up", 9, "from 0 to 1"),
    ("brac-p", "warm_up", 9, "from 0 to 1"),
    ("bcq", "minimum_weight", 3, "from 0 to 1"),
    ("sbac", "target_rate", 4, "from 0 to 1"),
    ("sbac", "alpha", -1, "of at least 0"),
    ("td3-bc", "alpha", -1, "of at least 0"),
    ("brac-plus", "alpha", 0, "above 0"),
    ("algae-dice", "exponent", 1, "above 1"),
    ("bc", "learning_rate", -0.1, "of at least 0"),
    ("bc", "discount", 2, "from 0 to 1"),
    ("bc", "validation", 1, "of at least 0 and below 1"),
    ("bc", "batch_size", 0, "of at least 1"),
    ("sbac", "ratio_hidden", 0, "of at least 1"),
    ("sbac", "tau", 0, "above 0 and below 1"),
]


@pytest.mark.parametrize(("algorithm", "field", "value", "expected"), OUT_OF_RANGE)
def test_what_is_out_of_range_is_refused_in_one_line(
    algorithm: str, field: str, value: float, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=f"^{field} {value}: expected (a number|a?.?whole numbers?) {expected}$"):
        members(find(algorithm), "quick", 1, {field: value})
    words = ["train", "hopper-demo", "--algorithm", algorithm, f"--{field.replace('_', '-')}", str(value)]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and line.startswith(f"error: {field} {value}: expected") and expected in line
    assert not (tmp_path / "run").exists()


def test_every_value_of_a_grid_is_checked() -> None:
    with pytest.raises(UserError, match="^minimum_weight 3: expected a number from 0 to 1$"):
        members(find("bcq"), "quick", 1, {"minimum_weight": [0.5, 3]})
    with pytest.raises(UserError, match=r"^hidden \[8, 0\]: expected whole numbers of at least 1$"):
        members(find("bc"), "quick", 1, {"hidden": [[8, 8], [8, 0]]})
    assert [m.config.validation for m in members(find("bc"), "quick", 1, {"validation": [0.0, 0.5]})] == [0.0, 0.5]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("learning_rate", "fast", "learning_rate fast: expected a number"),
        ("learning_rate", float("nan"), "learning_rate nan: expected a number"),
        ("learning_rate", 1e39, r"learning_rate 1e\+39: expected a number of at least 0"),
        ("batch_size", 2.5, "batch_size 2.5: expected a whole number"),
        ("hidden", [8, 2.5], r"hidden \[8, 2.5\]: expected whole numbers"),
        ("standardise_states", "maybe", "standardise_states maybe: expected true or false"),
        ("precision", "float16", "unknown precision 'float16'"),
    ],
)
def test_what_has_another_type_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        members(find("bc"), "quick", 1, {field: value})


def test_bounds_are_open_or_closed_as_they_say() -> None:
    size = fields_of(Outer)["inner_size"]
    assert size.convert("0.5") == 0.5 and size.expected == "a number above 0"
    with pytest.raises(UserError, match="^inner_size 0: expected a number above 0$"):
        size.convert("0")
    assert fields_of(find("iql").config)["dropout"].convert(0) == 0.0
    assert fields_of(find("bcq").config)["minimum_weight"].convert(1) == 1.0


# --- Saying what a field is -----------------------------------------------------------------------------------------


def declared(source: str) -> None:
    names: dict[str, Any] = {"__name__": __name__}
    code = "from sbac.config import Config, Options, config, nested, per_policy, shared\n"
    future = "from __future__ import annotations\n" if "FUTURE" in source else ""
    exec(compile(future + code + source.replace("FUTURE\n", ""), "<test>", "exec", dont_inherit=True), names)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("FUTURE\n@config\nclass A(Config):\n    x: float = per_policy(1.0, 'X.')", "A.x: its annotation is a string"),
        ("@config\nclass A(Config):\n    x: 'float' = per_policy(1.0, 'X.')", "A.x: its annotation is a string"),
        ("@config\nclass A(Config):\n    x: float = 1.0", "A.x: expected per_policy"),
        ("@config\nclass A(Config):\n    x: float", "A.x: expected per_policy"),
        ("@config\nclass A(Config):\n    x: float = per_policy(1.0, '')", "A.x: expected one line of help"),
        ("@config\nclass A(Config):\n    x: int = per_policy(1, 'X.')", "A.x: a per-policy field is a number"),
        ("@config\nclass A(Config):\n    x: dict = shared({}, 'X.')", "mutable default|A.x: annotation"),
        ("@config\nclass A(Config):\n    x: str = shared('a', 'X.')", "A.x: annotation"),
        ("@config\nclass A(Config):\n    x: float = per_policy(2.0, 'X.', at_most=1)", "A.x: its default is not one"),
        ("@config\nclass A(Config):\n    x: float = per_policy(1.0, 'X.', group='stuff')", "A.x: group 'stuff'"),
        ("@config\nclass A(Config):\n    batch_size: int = 0", "A.batch_size: its default is not one"),
        ("@config\nclass A(Config):\n    batch_size = 3", "A.batch_size: another default needs the annotation again"),
        (
            "@config\nclass A(Options):\n    x: float = per_policy(1.0, 'X.')\n"
            "@config\nclass B(Config):\n    a: A = nested(A(), prefix='a_', group='data')\n"
            "    a_x: float = per_policy(1.0, 'X.')",
            "B: a field has the flat name of another",
        ),
    ],
)
def test_a_field_that_does_not_say_what_it_is_is_refused_where_it_stands(source: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        declared(source)
    assert "\n" not in str(caught.value)


def test_another_default_leaves_the_rest_of_a_field_as_it_is() -> None:
    field, base = fields_of(Outer)["batch_size"], fields_of(Config)["batch_size"]
    assert (field.default, base.default) == (8, 256)
    assert field.spec == base.spec and field.spec.help == "Rows drawn for a step."


@pytest.mark.parametrize("name", REGISTRY)
def test_every_field_of_every_method_has_help_and_every_float_says_where_it_belongs(name: str) -> None:
    for field in fields_of(find(name).config).values():
        assert field.spec.help.endswith(".") and len(field.spec.help) < 160, field.name
        shared = ("validation", "warm_up", "dropout", "behaviour_dropout")
        assert field.spec.per_policy == (field.annotation is float) or field.name in shared
        assert field.convert(field.default) == field.default


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"presets": {"quick": {"learning_rat": 1.0}}}, "learning_rat is not a field of BCConfig"),
        ({"presets": {"quick": {"discount": 3.0}}}, "discount 3.0: expected"),
        ({"presets": {"quick": {"steps": (1, 2)}}}, "one number for each of its phases"),
        ({"grid": {"default": {"learning_rate": [1.0, -1.0]}}}, "learning_rate -1.0"),
        ({"grid": {"fast": {"learning_rate": [1.0]}}}, "a grid for preset 'fast'"),
        ({"config": Config}, "one number for each of its phases"),
    ],
)
def test_a_method_with_settings_that_it_does_not_have_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dataclasses.replace(find("bc"), **changes)


def test_a_method_may_try_other_settings_with_a_preset() -> None:
    grid = {"default": {"learning_rate": [1e-3]}, "paper": {"learning_rate": [1e-4, 1e-5]}}
    method: Algorithm = dataclasses.replace(find("bc"), grid=grid)
    assert method.settings_to_try("quick") == {"learning_rate": [1e-3]}
    assert method.settings_to_try("paper") == {"learning_rate": [1e-4, 1e-5]}


# --- Groups of fields -----------------------------------------------------------------------------------------------


def test_a_nested_config_is_flat_outside() -> None:
    made = Outer()
    assert list(values_of(made))[-3:] == ["inner_kind", "inner_size", "learning_rate"]
    assert values_of(made)["inner_kind"] == "two" == fields_of(Outer)["inner_kind"].default
    other = changed(made, {"inner_size": 3.0, "batch_size": 2})
    assert (other.inner.size, other.inner.kind, other.batch_size) == (3.0, "two", 2)
    with pytest.raises(UserError, match="inner_siz"):
        changed(made, {"inner_siz": 3.0})


def test_the_leaves_of_a_config_are_its_per_policy_fields() -> None:
    configs = [changed(SBACConfig(), {"alpha": alpha, "ratio_log_w_clip": 2 * alpha}) for alpha in (1.0, 2.0)]
    stacked = stack(configs)
    np.testing.assert_array_equal(stacked.ratio.log_w_clip, [2.0, 4.0])
    assert stacked.ratio.form == "exact" and stacked.hidden == (256, 256, 256)
    per_policy_fields = [f for f in fields_of(SBACConfig).values() if f.spec.per_policy]
    assert len(jax.tree.leaves(stacked)) == len(per_policy_fields) > 10
    assert all(leaf.shape == (2,) for leaf in jax.tree.leaves(stacked))


def test_flat_names_work_everywhere_outside() -> None:
    overrides = {
        "ratio_form": "theorem",
        "ratio_log_w_clip": ["1", "2"],
        "ratio_hidden": ["4", "4"],
        "ratio_every": "3",
    }
    first, second = members(find("sbac"), "quick", 1, overrides)
    assert second.label == "ratio_log_w_clip=2_alpha=1_seed=0"
    record = first.record()
    assert (record["ratio_form"], record["ratio_log_w_clip"], record["ratio_hidden"]) == ("theorem", 1.0, (4, 4))
    config: Any = first.config
    assert config.ratio.form == "theorem" and config.ratio_every == 3
    with pytest.raises(UserError, match="unknown ratio_estimator 'kernel'"):
        members(find("sbac"), "quick", 1, {"ratio_estimator": "kernel"})


# --- The command line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_help_lists_the_options_of_a_method(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--algorithm", name, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    for field in fields_of(find(name).config).values():
        assert f"\n  --{field.name.replace('_', '-')} " in text and f"\n{field.spec.group}:\n" in text
        assert f"{field.spec.help} {field.expected.capitalize()}; default " in words
    assert f"--algorithm {name}" in text.splitlines()[-1]


def test_help_shows_the_defaults_of_a_preset_and_where_others_differ(capsys: pytest.CaptureFixture[str]) -> None:
    def alpha(*words: str) -> str:
        assert main(["train", *words]) == 0
        after = capsys.readouterr().out.split("  --alpha NUMBER *\n")[1]
        return " ".join(after.split("\n  --")[0].split())

    about = "Weight of log mu in objective (8). A number of at least 0; "
    assert alpha("--algorithm", "sbac", "--help") == about + "default 1 (paper, corrected: 2)."
    assert alpha("-h", "--algorithm=sbac", "--preset", "tuned") == about + "default 1 (paper, corrected: 2)."
    assert main(["train", "--algorithm", "sbak", "--help"]) == 2
    assert main(["train", "--algorithm", "bc", "--preset", "tuned", "--help"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_help_without_a_method_is_short_and_says_where_the_options_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and len(text.splitlines()) < 70 and "--expectile" not in text
    assert "sbac train --algorithm NAME --help" in " ".join(text.split())


def test_methods_are_listed_in_order_with_paper_phases_and_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    rows = [line.split() for line in text.splitlines() if line and not line.startswith(" ")]
    assert [row[0] for row in rows[1:-1]] == list(REGISTRY)
    plus = next(row for row in rows if row[0] == "brac-plus")
    assert " ".join(plus) == "brac-plus a log clone, initial, train quick, paper"
    assert rows[-2][1:3] == ["an", "environment"] and "Implicit Q-Learning, ICLR 2022" in text
    assert main(["methods", "iql"]) == 0
    one = " ".join(capsys.readouterr().out.split())
    assert "ICLR 2022" in one and "temperature 0.5 1 3 10" in one and "--expectile NUMBER *" in one
    assert main(["methods", "ikl"]) == 2
    assert "did you mean 'iql'" in capsys.readouterr().err


# --- A new method ---------------------------------------------------------------------------------------------------


def test_a_new_method_is_one_file_and_one_line_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the examples: importing it writes the line."""
    from sbac.lab.bench.code import code_version, sources
    from sbac.lab.bench.plan import plan
    from sbac.lab.naming import method_order

    examples = Path(__file__).parents[1] / "examples"
    monkeypatch.syspath_prepend(examples)
    monkeypatch.setitem(REGISTRY, "huber-bc", "custom_method:HUBER_BC")
    try:
        (cell,) = plan(["hopper-demo"], ["huber-bc"], seeds=2, grids={"huber-bc": {"delta": [0.01, 0.1, 1.0]}})
        assert cell.settings == {"delta": [0.01, 0.1, 1.0]} and len(cell.runs(None)) == 6
        code = sources("huber-bc")
        assert code["custom_method"] == examples / "custom_method.py" and "sbac.config" in code
        assert code_version("huber-bc")["hash"] != code_version("bc")["hash"]
        assert method_order("td3") < method_order("huber-bc") < method_order("another")
        assert main(["methods"]) == 0 and "\nhuber-bc " in capsys.readouterr().out
        out, small = str(tmp_path / "run"), ["--steps", "100", "--hidden", "8", "--batch-size", "16", "--no-evaluate"]
        words = ["train", "hopper-demo", "--algorithm", "huber-bc", "--out", out, *small, "--delta"]
        assert main([*words, "0.1", "1"]) == 0
        run = sbac.Run.load(out)
        assert [p.config["delta"] for p in run.policies] == [0.1, 1.0] and not run.diverged
        assert main([*words, "0"]) == 2
        assert "delta 0: expected a number above 0" in capsys.readouterr().err
    finally:
        sys.modules.pop("custom_method", None)
