"""Errors of the supervisor, as the Python process raises them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost import errors
from elastichost.api.launch import ErrorFacts
from elastichost.errors import ConfigError, DataError, ElastichostError, JobFailedError, ModelError

OF_USER = (
    'Traceback (most recent call last):\n  File "model.py", line 3, in build\n    1 / 0\nZeroDivisionError: division'
)
OF_ELASTICHOST = (
    "Traceback (most recent call last):\n"
    f'  File "{Path(errors.__file__).parent}/user_model/build.py", line 1, in build\n'
    "    raise\nelastichost.errors.ModelError: none"
)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a", problems=("b", "c"), hint="d"),
        ModelError("a", traceback_text=OF_USER, hint="d"),
        DataError("a", hint="d"),
    ],
)
def test_an_error_arrives_as_it_was(error: ElastichostError) -> None:
    again = ErrorFacts.of(error).error()
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) | {"__notes__": None} == vars(error) | {"__notes__": None}


def test_a_bug_arrives_as_a_failed_job() -> None:
    assert type(ErrorFacts("KeyError", "x").error()) is JobFailedError


@pytest.mark.parametrize(
    ("text", "is_shown"), [(OF_USER, True), (OF_ELASTICHOST, False), ("TypeError: no frames", False)]
)
def test_the_traceback_of_the_users_model_is_shown_with_the_error(text: str, is_shown: bool) -> None:
    error = ErrorFacts.of(ModelError("a", traceback_text=text)).error()
    assert getattr(error, "__notes__", []) == [text] * is_shown
