"""`Data` and `Table`: the sections [data] and [tables.<name>] of a job, for Python.

They have the fields of these sections. A wrong value raises the same ConfigError as the job file does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from elastichost.config.base import Section
from elastichost.config.explain import explain
from elastichost.config.sections.data import DataSection
from elastichost.config.sections.schema import TableOverrides
from elastichost.errors import ConfigError

__all__ = ["Data", "Table", "given"]


class Data(DataSection):
    """The data of a job; the fields are those of `[data]` (`docs/reference/job-file.md`). Paths are relative to the
    working directory. Raises ConfigError with every wrong field."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise _refused("eh.Data", error, fields, DataSection) from None


class Table(TableOverrides):
    """The settings of one table, or of all as `tables={"default": ...}`; the fields are those of `[tables.<name>]`.
    Raises ConfigError with every wrong field."""

    if not TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise _refused("eh.Table", error, fields, TableOverrides) from None


def given(section: Section) -> dict[str, Any]:
    """The fields that were given, as a job file would have them; fields with their defaults are left out."""
    found: dict[str, Any] = _listed(section.model_dump(exclude_unset=True))
    return found


def _listed(value: Any) -> Any:
    """The value with lists instead of tuples, as TOML has them."""
    if isinstance(value, dict):
        return {key: _listed(one) for key, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def _refused(name: str, error: ValidationError, fields: dict[str, Any], section: type[Section]) -> ConfigError:
    problems = tuple(explain(error, fields, section, {}))
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return ConfigError(f"{name}: {count}", problems=problems, hint=f"`help({name})` lists the fields")
