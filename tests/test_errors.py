"""Errors that another process reported are raised again by their names."""

from __future__ import annotations

import pytest

from elastichost import errors
from elastichost.errors import ElastichostError, IllegalTransitionError, JobFailedError, named_error

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ElastichostError)]


@pytest.mark.parametrize("kind", [one for one in CLASSES if one is not IllegalTransitionError])
def test_each_class_is_made_again_with_its_exit_code(kind: type[ElastichostError]) -> None:
    again = named_error(kind.__name__, "row 6", hint="mend it")
    assert (type(again), again.message, again.hint) == (kind, "row 6", "mend it")
    assert again.exit_code == kind.exit_code


@pytest.mark.parametrize("name", ["KeyError", "IllegalTransitionError", "ExitCode", "traceback", ""])
def test_any_other_name_is_a_failed_job_that_tells_it(name: str) -> None:
    again = named_error(name, "x", hint="y")
    assert (type(again), again.message, again.hint) == (JobFailedError, f"{name}: x", "y")
