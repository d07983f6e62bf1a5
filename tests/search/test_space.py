"""Parameters of a search: what is parsed, what is refused, and what `--set` is given."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from elastichost.errors import ConfigError
from elastichost.search.space import Parameter, parse_parameter, parse_parameters

FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.integers(-(2**60), 2**60) | FINITE | st.booleans() | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.lr=log(0.01,1)", Parameter("train.lr", "log", 0.01, 1.0)),
        (" train.lr = uniform( -1 , 2.5e1 ) ", Parameter("train.lr", "uniform", -1.0, 25.0)),
        ("model.args.depth=int(1, 4)", Parameter("model.args.depth", "int", 1.0, 4.0)),
        ("o.name=choice(sgd, adam)", Parameter("o.name", "choice", choices=("sgd", "adam"))),
        ("b=choice(64, 128)", Parameter("b", "choice", choices=("64", "128"))),
        ("b=choice([8, 1], [16, 1])", Parameter("b", "choice", choices=("[8, 1]", "[16, 1]"))),
        ('b=choice("a=(b", true)', Parameter("b", "choice", choices=('"a=(b"', "true"))),
        ('i=choice("uniform(-1,1)", "a")', Parameter("i", "choice", choices=('"uniform(-1,1)"', '"a"'))),
    ],
)  # fmt: skip
def test_parameters(text: str, expected: Parameter) -> None:
    assert parse_parameter(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.lr", "is not SETTING=KIND"),
        ("train.lr=0.1", "is not SETTING=KIND"),
        ("train.lr=lgo(0.01, 1)", 'did you mean "log"'),
        ("train.lr=log(0.01)", "two numbers"),
        ("train.lr=log(a, b)", "two numbers"),
        ("train.lr=uniform(0, inf)", "two numbers"),
        ("train.lr=uniform(nan, 1)", "two numbers"),
        ("train.lr=log(0, 1)", "above 0"),
        ("train.lr=log(1, 0.1)", "above the upper"),
        ("train.lr=int(1.5, 3)", "two whole numbers"),
        ("train.lr=int(1, 1e300)", "two whole numbers"),
        ("train.lr=choice(1)", "at least two"),
        ("train.lr=choice()", "at least two"),
        ("train.lr=choice(a,,b)", "at least two"),
        ("train.lr=choice(1, 1)", "named twice"),
        ('i=choice("uniform(-1,1)", a)', "strings in quotes"),
        ("job.name=choice(a, b)", "names the jobs itself"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_parameter(text)


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_parameters(["a=log(0, 1)", "b=int(1, 2)", "b=int(1, 3)", "c"])
    assert len(caught.value.problems) == 3
    assert "b is named twice" in caught.value.problems[1]
    with pytest.raises(ConfigError) as caught:
        parse_parameters([])
    assert caught.value.problems == ("a search needs at least one --param",)


@given(FINITE, FINITE)
def test_the_text_of_a_number_is_that_number(one: float, other: float) -> None:
    low, high = sorted((one, other))
    parameter = Parameter("a", "uniform", low, high)
    assert [tomllib.loads(parameter.override(text))["a"] for text in parameter.extremes()] in ([low, high], [low])
    assert parse_parameter(f"a=uniform({low!r}, {high!r})") == parameter


@example([0, "\x7f"])
@given(st.lists(VALUES, min_size=2, max_size=4))
def test_choices_of_toml_stay_the_same_values(values: list[object]) -> None:
    """A list in JSON is a list in TOML, except for DEL, which TOML wants escaped."""
    inside = msgspec.json.encode(values).decode()[1:-1].replace("\x7f", "\\u007f")
    assume(len({repr(value) for value in values}) == len(values))
    parameter = parse_parameter(f"a=choice({inside})")
    assert [tomllib.loads(parameter.override(text))["a"] for text in parameter.choices] == values


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for whole in (text, f"a={text}", f"a=choice({text})", f"a=int({text})"):
        try:
            parameter = parse_parameter(whole)
        except ConfigError:
            continue
        assert parameter.extremes()
