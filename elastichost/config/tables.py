"""From the job's `[tables.*]` to id spaces: the table of each feature, and the full settings of each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from elastichost.config.job import JobSpec
from elastichost.config.rules import table_problems
from elastichost.config.sections.schema import DEFAULT_TABLE, RowOptimizerSettings, TableOverrides
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.specs import KeyKind, OutOfRange, Precision, TableSpec

__all__ = [
    "InitRange",
    "TableSettings",
    "parse_init",
    "resolve_tables",
    "table_settings",
]


class InitRange(NamedTuple):
    """The range of a new row's values: uniform in [low, high], constant when both are equal."""

    low: float
    high: float


class TableSettings(msgspec.Struct, frozen=True):
    """All settings of one table, with the defaults filled in. `rows == 0`: dynamic."""

    name: str
    features: tuple[str, ...]
    dim: int = 16
    rows: int = 0
    init: str = "uniform(-0.01, 0.01)"  # see parse_init
    out_of_range: OutOfRange = "error"
    pooling: Literal["sum", "mean"] = "sum"
    precision: Precision = "float32"
    optimizer: RowOptimizerSettings = RowOptimizerSettings()
    admit_after: int = 1
    evict_after_samples: int = 0

    @property
    def is_dynamic(self) -> bool:
        return self.rows == 0


def parse_init(rule: str) -> InitRange:
    """The range of `uniform(low, high)` or `constant(value)`: a rule that the job file accepts (`values.InitRule`)."""
    numbers = [float(text) for text in rule.replace(" ", "").partition("(")[2].removesuffix(")").split(",")]
    return InitRange(numbers[0], numbers[-1])


def table_settings(job: JobSpec, table_name: str) -> TableSettings:
    """The settings of a table of the job file, or of the table that a categorical column has by default.

    Precedence: `[tables.<name>]` > `[tables.default]` > built-in defaults. Raises ConfigError when no table and no
    categorical column has this name.
    """
    own = None if table_name == DEFAULT_TABLE else job.tables.get(table_name)  # a column may have that name, too
    if own is None and table_name not in job.data.categorical:
        known = [*job.tables, *job.data.categorical]
        raise ConfigError(f"no table {table_name!r} in this job{did_you_mean(table_name, known)}")
    layers = [layer for layer in (job.tables.get(DEFAULT_TABLE), own) if layer is not None]
    changes: dict[str, object] = {}
    for layer in layers:
        changes.update(_given(layer))
    features = own.features if own is not None and own.features is not None else (table_name,)
    settings = TableSettings(name=table_name, features=features, optimizer=_optimizer(job, layers))
    return msgspec.structs.replace(settings, **changes)


def _given(layer: TableOverrides) -> dict[str, object]:
    """The settings that one section gives, with the names and types of TableSettings. `features` and `optimizer` are
    not among them: they are merged separately."""
    given: dict[str, object] = {}
    for name in ("dim", "init", "out_of_range", "pooling", "precision", "admit_after", "evict_after_samples"):
        value = getattr(layer, name)
        if value is not None:
            given[name] = value
    if layer.rows is not None:
        given["rows"] = layer.rows if isinstance(layer.rows, int) else 0
    return given


def _optimizer(job: JobSpec, layers: list[TableOverrides]) -> RowOptimizerSettings:
    changes = [layer.optimizer.model_dump(exclude_none=True) for layer in layers if layer.optimizer is not None]
    values = job.train.optimizer_rows.model_dump()
    for change in changes:
        values.update(change)
    return RowOptimizerSettings(**values)


def resolve_tables(job: JobSpec, key_kinds: Mapping[str, KeyKind]) -> tuple[TableSpec, ...]:
    """The job's id spaces, in the order of their first feature in `data.categorical`.

    Every categorical column that no table names gets its own table with the column's name. `key_kinds` maps a
    column to the kind of its ids, as found in the data. Raises ConfigError with every problem: a feature in two tables,
    an unknown feature, a column whose kind of ids is not known, tables whose columns hold both ints and strings.
    """
    problems = table_problems(job.data.categorical, job.tables)
    owner = _owners(job)
    specs: list[TableSpec] = []
    for name in dict.fromkeys(owner[column] for column in job.data.categorical):
        settings = table_settings(job, name)
        kinds = {column: key_kinds[column] for column in settings.features if column in key_kinds}
        missing = [column for column in settings.features if column not in key_kinds]
        problems.extend(
            f"tables.{name}: the reader of the data reports no kind of ids (int or string) for column {c!r}"
            for c in missing
        )
        if len(set(kinds.values())) > 1:
            listed = ", ".join(f"{column} holds {kind} ids" for column, kind in kinds.items())
            problems.append(
                f"tables.{name}: int ids and string ids are different keys and need separate tables: {listed}"
            )
        specs.append(_spec(settings, len(specs), next(iter(kinds.values()), "int")))
    if problems:
        raise ConfigError("the tables of this job do not fit its data", problems=tuple(problems))
    return tuple(specs)


def _owners(job: JobSpec) -> dict[str, str]:
    """The name of each categorical column's table, by column."""
    owner = {column: column for column in job.data.categorical}
    for name, table in job.tables.items():
        if name != DEFAULT_TABLE and table.features is not None:
            owner.update({column: name for column in table.features if column in owner})
    return owner


def _spec(settings: TableSettings, index: int, kind: KeyKind) -> TableSpec:
    return TableSpec(
        name=settings.name,
        index=index,
        features=settings.features,
        key_kind=kind,
        rows=settings.rows,
        out_of_range=settings.out_of_range,
        admit_after=settings.admit_after,
        evict_after_samples=settings.evict_after_samples,
    )
