"""`Data` and `Table`: the sections [data] and [tables.<name>] of a job, for Python.

They have the fields of these sections. A wrong value raises the same ConfigError as the job file does. The types here
are what a user may write; a section holds what a job file would: tuples instead of lists, texts instead of paths.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, get_args, get_type_hints

from pydantic import PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from elastichost.api.rows import ArrowTable, HuggingFaceDataset, PythonRows, Split, taken_rows
from elastichost.config.base import Section
from elastichost.config.explain import explain
from elastichost.config.sections.data import CsvSettings, DataSection, SyntheticSettings
from elastichost.config.sections.input import InputSettings
from elastichost.config.sections.remote import RemoteSettings
from elastichost.config.sections.schema import RowOptimizerOverrides, TableOverrides
from elastichost.errors import ConfigError

__all__ = ["Data", "DataFields", "Table", "TableFields", "given", "plain"]

PathName = str | os.PathLike[str]
Settings = Mapping[str, Any]
DOC_WIDTH = 110


class DataFields(TypedDict, total=False):
    """The arguments of `Data`."""

    train: PathName | Sequence[PathName] | PythonRows | ArrowTable | HuggingFaceDataset
    test: PathName | Sequence[PathName] | PythonRows | ArrowTable | HuggingFaceDataset
    test_fraction: float
    format: str
    label: str | Sequence[str]
    weight: str
    dense: str | Sequence[str]
    categorical: str | Sequence[str]
    order: Literal["file", "shuffle_groups", "shuffle"]
    bad_rows: Literal["stop", "skip"]
    limit_rows: int
    null_fill: float
    dense_transform: Literal["none", "log1p", "signed_log1p"]
    csv: CsvSettings | Settings
    synthetic: SyntheticSettings | Settings
    input: InputSettings | Settings
    remote: RemoteSettings | Settings


class TableFields(TypedDict, total=False):
    """The arguments of `Table`."""

    features: str | Sequence[str] | None
    dim: int | None
    rows: int | Literal["dynamic"] | None
    init: str | None
    out_of_range: Literal["error", "modulo"] | None
    pooling: Literal["sum", "mean"] | None
    precision: Literal["float32", "bfloat16"] | None
    optimizer: RowOptimizerOverrides | Settings | None
    admit_after: int | None
    evict_after_samples: int | None


class Data(DataSection):
    """The data of a job: files or rows, columns, and how bad values are treated. Paths are relative to the working
    directory. train and test may also be `eh.from_iterable(...)`, a data frame, an Arrow table, or one split of a
    dataset of Hugging Face. Raises ConfigError with every wrong field."""

    _rows: dict[Split, PythonRows] = PrivateAttr(default_factory=dict)

    def __init__(self, **fields: Unpack[DataFields]) -> None:
        files, rows = taken_rows(fields, "eh.Data")
        written = plain(files)
        try:
            super().__init__(**written)
        except ValidationError as error:
            raise _refused("eh.Data", error, written, DataSection) from None
        self._rows = rows

    @property
    def rows(self) -> dict[Split, PythonRows]:
        """The rows that were given in place of files, by split."""
        return self._rows

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        for name, value in given(self).items():
            yield name, next((rows for split, rows in self._rows.items() if split == name), value)


class Table(TableOverrides):
    """The settings of one embedding table, or of all as `tables={"default": eh.Table(...)}`. Raises ConfigError with
    every wrong field."""

    def __init__(self, **fields: Unpack[TableFields]) -> None:
        written = plain(fields)
        try:
            super().__init__(**written)
        except ValidationError as error:
            raise _refused("eh.Table", error, written, TableOverrides) from None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from given(self).items()


def given(section: Section) -> dict[str, Any]:
    """The fields that were given, as a job file would have them; fields with their defaults are left out."""
    found: dict[str, Any] = plain(section.model_dump(exclude_unset=True, exclude_none=True))
    return found


def plain(value: Any) -> Any:
    """The value as TOML has it: lists instead of tuples, texts instead of paths, and numbers and lists instead of
    numpy's and pandas' (`dense=frame.columns[2:]`)."""
    if isinstance(value, Section):
        return given(value)
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "columns"):  # a data frame or an Arrow table
        raise ConfigError(
            f"a {type(value).__name__} was given, where a job has the name of a file",
            hint="a table is the train or the test of a job: eh.Data(train=table, ...)",
        )
    if not isinstance(value, type) and hasattr(value, "tolist"):
        value = value.tolist()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def _refused(name: str, error: ValidationError, fields: dict[str, Any], section: type[Section]) -> ConfigError:
    problems = tuple(explain(error, fields, section, {}))
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return ConfigError(f"{name}: {count}", problems=problems, hint=f"`help({name})` lists the fields")


def _describe(section: type[Section], types: Mapping[str, Any]) -> None:
    """Gives a class what `help` and the completion of an editor show: its arguments, and what each of them means."""
    names = section.model_fields
    lines = [line for name, field in names.items() for line in _field_lines(name, field)]
    section.__doc__ = "\n".join([inspect.getdoc(section) or "", "", "Arguments, all by name:", *lines])
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.get_default(), annotation=types[name])
        for name, field in names.items()
    ]
    section.__signature__ = inspect.Signature(parameters)


def _field_lines(name: str, field: FieldInfo) -> list[str]:
    text = (field.description or "").replace("relative to the job file", "relative to the working directory")
    if not text:  # a section of its own
        kinds = (field.annotation, *get_args(field.annotation))
        kind = next(one for one in kinds if isinstance(one, type) and issubclass(one, Section))
        text = f"{' '.join((kind.__doc__ or '').split())} Settings: {', '.join(kind.model_fields)}."
    return textwrap.wrap(f"{name}: {text}", DOC_WIDTH, initial_indent="    ", subsequent_indent="        ")


_describe(Data, get_type_hints(DataFields))
_describe(Table, get_type_hints(TableFields))
