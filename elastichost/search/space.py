"""The parameters of a search: `train.optimizer_rows.lr=log(0.01, 1)` names a setting and the values to try. Pure."""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any, Literal, get_args

import msgspec

from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["Parameter", "ValueKind", "parse_parameter", "parse_parameters"]

ValueKind = Literal["log", "uniform", "int", "choice"]
KINDS: tuple[ValueKind, ...] = get_args(ValueKind)
FORM = re.compile(r"(?P<path>[^=]+)=\s*(?P<kind>\w+)\s*\((?P<inside>.*)\)\s*", re.DOTALL)
HINT = (
    "write SETTING=log(LOW, HIGH), SETTING=uniform(LOW, HIGH), SETTING=int(LOW, HIGH) or SETTING=choice(A, B, ...): "
    "train.optimizer_rows.lr=log(0.01, 1)"
)


class Parameter(msgspec.Struct, frozen=True):
    """A setting whose value a search looks for.

    path: the setting, as in `--set`. kind: log and uniform are numbers in [low, high], with equal probability of equal
    ratios and of equal differences; int are whole numbers from low to high; choice is one of `choices`, which are texts
    as in `--set`."""

    path: str
    kind: ValueKind
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()

    def text(self, value: float | str) -> str:
        """A value as `--set` takes it."""
        if self.kind == "choice":
            return str(value)
        return str(int(value)) if self.kind == "int" else repr(float(value))

    def override(self, text: str) -> str:
        """`path=text`, as for `--set`."""
        return f"{self.path}={text}"

    def extremes(self) -> tuple[str, ...]:
        """Texts of the values that must be allowed so that all are: both ends, or each choice."""
        if self.kind == "choice":
            return self.choices
        return tuple(dict.fromkeys(self.text(end) for end in (self.low, self.high)))


def parse_parameters(texts: list[str] | tuple[str, ...]) -> tuple[Parameter, ...]:
    """Parses all parameters of a search. Raises ConfigError with every problem, also for a setting that is named
    twice."""
    found: list[Parameter] = []
    problems: list[str] = []
    for text in texts:
        try:
            parameter = parse_parameter(text)
        except ConfigError as error:
            problems.append(error.message)
            continue
        if parameter.path in {one.path for one in found}:
            problems.append(f"--param {text!r}: {parameter.path} is named twice")
        found.append(parameter)
    if not texts:
        problems.append("a search needs at least one --param")
    if problems:
        raise ConfigError("the parameters of the search are not valid", problems=tuple(problems), hint=HINT)
    return tuple(found)


def parse_parameter(text: str) -> Parameter:
    """Parses one parameter. Raises ConfigError."""
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "it is not SETTING=KIND(VALUES)")
    path, word, inside = match["path"].strip(), match["kind"], match["inside"]
    kind = next((one for one in KINDS if one == word), None)
    if kind is None:
        raise _wrong(text, f"unknown kind {word!r}{did_you_mean(word, KINDS)}")
    if path == "job.name":
        raise _wrong(text, "the search names the jobs itself")
    if kind == "choice":
        return Parameter(path, kind, choices=_choices(text, inside))
    low, high = _bounds(text, kind, inside)
    return Parameter(path, kind, low, high)


def _bounds(text: str, kind: ValueKind, inside: str) -> tuple[float, float]:
    try:
        numbers = [float(part) for part in inside.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        raise _wrong(text, f"{kind} needs two numbers")
    low, high = numbers
    if low > high:
        raise _wrong(text, "the lower bound is above the upper one")
    if kind == "log" and low <= 0:
        raise _wrong(text, "log needs a lower bound above 0")
    if kind == "int" and not (low.is_integer() and high.is_integer() and max(abs(low), abs(high)) <= 2**53):
        raise _wrong(text, "int needs two whole numbers of at most 2**53")
    return low, high


def _choices(text: str, inside: str) -> tuple[str, ...]:
    """The texts of a list of values. It is read as TOML; where it is not TOML, it is split at commas, so strings need
    no quotes."""
    try:
        values = tomllib.loads(f"values = [{inside}]")["values"]
    except tomllib.TOMLDecodeError:
        values = None
        if set(inside) & set("\"'[]{}"):
            raise _wrong(text, "its values are not TOML; put all of them that are strings in quotes, or none") from None
    texts = [part.strip() for part in inside.split(",")] if values is None else [_toml(value) for value in values]
    if len(texts) < 2 or "" in texts:
        raise _wrong(text, "choice needs at least two values")
    if len(set(texts)) < len(texts):
        raise _wrong(text, "a value is named twice")
    return tuple(texts)


def _toml(value: Any) -> str:
    """A TOML value as one line. Strings are in quotes, so that they stay strings."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml(key)} = {_toml(one)}' for key, one in value.items())} }}"
    if isinstance(value, str):
        # a string of JSON is one of TOML, but for one control character that TOML wants escaped
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else str(value)


def _wrong(text: str, why: str) -> ConfigError:
    return ConfigError(f"--param {text!r}: {why}", hint=HINT)
