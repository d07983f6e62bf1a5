"""Checks of settings against each other, after each was checked on its own. They get sections, not the whole job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from elastichost.config.metric_rules import metric_problems
from elastichost.config.sections.data import DataSection, implied_columns
from elastichost.config.sections.schema import (
    DEFAULT_TABLE,
    EvaluateSection,
    ResourcesSection,
    TableOverrides,
    TrainSection,
)
from elastichost.config.sections.supervision import CheckpointSection
from elastichost.human_readable import did_you_mean

__all__ = ["cross_problems", "table_problems"]


def cross_problems(
    data: DataSection | None,
    tables: Mapping[str, TableOverrides] | None,
    train: TrainSection | None,
    evaluate: EvaluateSection | None,
    resources: ResourcesSection | None,
    checkpoint: CheckpointSection | None = None,
) -> list[str]:
    """Problems between valid sections, one line each. None stands for a section that is not valid by itself."""
    problems: list[str] = []
    if data is not None:
        problems += _column_problems(data) + _source_problems(data)
        if tables is not None:
            problems += table_problems(data.categorical, tables)
    if train is not None:
        if train.mode == "sync":
            problems += _sync_problems(train, tables or {})
        elif train.access == "direct" and resources is not None and resources.hosts > 1:
            problems.append(
                f'train.access = "direct": with resources.hosts = {resources.hosts} rows of other hosts are served by '
                "messages; "
                'allowed: "auto", "served"'
            )
        schedule = train.schedule
        if 0 < schedule.total_samples <= schedule.warmup_samples:
            problems.append(
                f"train.schedule.total_samples = {schedule.total_samples}: the warm-up alone has "
                f"{schedule.warmup_samples} samples; allowed: 0 (all samples of the job), or more than these"
            )
    if resources is not None and resources.model_memory == "gpu":
        problems += _model_memory_problems(train, resources)
    if data is not None and evaluate is not None:
        problems += metric_problems(data, evaluate, checkpoint.keep_best if checkpoint is not None else "")
    if data is not None and evaluate is not None and not data.has_test:
        if evaluate.every_samples:
            problems.append(
                f"evaluate.every_samples = {evaluate.every_samples}: there is no test data; add data.test or "
                "data.test_fraction, or set this to 0"
            )
        if evaluate.early_stop.patience:
            problems.append(
                f"evaluate.early_stop.patience = {evaluate.early_stop.patience}: there is no test data; add data.test "
                "or data.test_fraction, or set this to 0"
            )
    return problems


def _model_memory_problems(train: TrainSection | None, resources: ResourcesSection) -> list[str]:
    """Settings with which the model cannot be in memory of a GPU."""
    where, host = 'resources.model_memory = "gpu"', 'allowed: "host"'
    problems = []
    if resources.gpus == 0:
        problems.append(f"{where}: the job has no GPU, because resources.gpus = 0; set resources.gpus = 1, or {host}")
    if train is not None and train.mode == "sync":
        problems.append(f'{where}: with train.mode = "sync" rows are served by messages; {host}')
    if train is not None and train.clip_norm:
        problems.append(f"{where}: a GPU does not clip gradients (train.clip_norm = {train.clip_norm:g}); {host}")
    if train is not None and train.access == "served":
        problems.append(f'{where}: with train.access = "served" rows are served by messages; {host}')
    if resources.hosts > 1:
        problems.append(f"{where}: with resources.hosts = {resources.hosts} rows are served by messages; {host}")
    return problems


def _sync_problems(train: TrainSection, tables: Mapping[str, TableOverrides]) -> list[str]:
    """Settings of sync mode with which the result would depend on the order in which workers finish."""
    problems = []
    if train.access == "direct":
        problems.append(
            'train.access = "direct": with mode = "sync" rows are served by messages; allowed: "auto", "served"'
        )
    if train.micro_batches > train.batch_size:
        problems.append(
            f"train.micro_batches = {train.micro_batches}: a step has train.batch_size = {train.batch_size} samples; "
            f"allowed: 1 to {train.batch_size}"
        )
    default = tables.get(DEFAULT_TABLE, TableOverrides())
    for name, table in tables.items():
        where = f"tables.{name}" if name == DEFAULT_TABLE else f"tables.{name} (or tables.default)"
        if (table.admit_after or default.admit_after or 1) > 1:
            problems.append(f'{where}.admit_after: with mode = "sync" every id gets a row at once; allowed: 1')
        if table.evict_after_samples or (table.evict_after_samples is None and default.evict_after_samples):
            problems.append(f'{where}.evict_after_samples: with mode = "sync" no rows are dropped; allowed: 0')
        if (table.precision or default.precision) == "bfloat16" and (table.rows or default.rows) in ("dynamic", None):
            problems.append(
                f'{where}.precision = "bfloat16": with mode = "sync" only tables with a fixed number of rows may use '
                'it; allowed: "float32"'
            )
    return problems


def _column_problems(data: DataSection) -> list[str]:
    implied = implied_columns(data.format, data.synthetic)
    if implied is not None:
        problems = [
            f'data.{name}: the columns of format "{data.format}" are fixed; remove this setting'
            for name in ("label", "dense", "categorical")
            if getattr(data, name) != getattr(implied, name)
        ]
        if data.weight:
            problems.append(
                f'data.weight = "{data.weight}": format "{data.format}" has no weights; remove this setting'
            )
        return problems
    problems = []
    if not data.label:
        problems.append("data.label: is missing; allowed: a column name, or a list of them (multi-task)")
    if not data.categorical:
        problems.append("data.categorical: is missing; allowed: a list of at least one column name")
    problems += [f"data.{where}: a column name is empty" for where, columns in _columns(data) if "" in columns]
    problems += _repeated_columns(data)
    known = [column for _, columns in _columns(data) for column in columns]
    for column in data.csv.types:
        if column not in data.categorical:
            hint = did_you_mean(column, known)
            problems.append(f"data.csv.types.{column}: {column!r} is not one of data.categorical{hint}")
    return problems


def _columns(data: DataSection) -> Iterable[tuple[str, tuple[str, ...]]]:
    weight = (data.weight,) if data.weight else ()
    labels = data.labels if data.label else ()
    return (("label", labels), ("weight", weight), ("dense", data.dense), ("categorical", data.categorical))


def _repeated_columns(data: DataSection) -> list[str]:
    problems: list[str] = []
    first: dict[str, str] = {}
    for where, columns in _columns(data):
        for column in columns:
            if column not in first:
                first[column] = where
            elif first[column] == where:
                problems.append(f"data.{where}: column {column!r} is named twice")
            elif where == "categorical" and first[column] == "dense":
                continue  # an integer column may be both a dense value and an id
            else:
                problems.append(f"data.{where}: column {column!r} is already named in data.{first[column]}")
    return problems


def _source_problems(data: DataSection) -> list[str]:
    if data.format == "synthetic":
        return [
            f'data.{split}: format "synthetic" reads no files; remove this setting'
            for split in ("train", "test", "test_fraction")
            if getattr(data, split)
        ]
    problems = [] if data.train else ["data.train: is missing; allowed: a list of files or globs"]
    if data.test_fraction and data.test:
        problems.append(f"data.test_fraction = {data.test_fraction}: data.test names test data; remove one of them")
    if data.test_fraction and data.has_own_reader:
        problems.append(
            f"data.test_fraction = {data.test_fraction}: your own reader chooses its test data; remove this setting"
        )
    return problems


def table_problems(categorical: tuple[str, ...], tables: Mapping[str, TableOverrides]) -> list[str]:
    """Problems between the tables and the categorical columns, one line each."""
    problems: list[str] = []
    owner: dict[str, str] = {}
    for name, table in tables.items():
        if name == DEFAULT_TABLE:
            if table.features is not None:
                problems.append(
                    "tables.default.features: [tables.default] applies to every table and names no features; remove "
                    "this setting"
                )
            continue
        if table.features is not None and not table.features:
            problems.append(f"tables.{name}.features = []: a table needs at least one feature")
        for column in table.features if table.features is not None else (name,):
            where = f"tables.{name}.features" if table.features is not None else f"tables.{name}"
            if column not in categorical:
                what = f"{column!r} is not one of data.categorical{did_you_mean(column, categorical)}"
                problems.append(f"{where}: {what}")
            elif column in owner:
                again = "twice" if owner[column] == name else f"in tables.{owner[column]} already"
                problems.append(f"{where}: feature {column!r} is named {again}; a feature belongs to one table")
            else:
                owner[column] = name
    for name in tables:
        if name == DEFAULT_TABLE or name not in categorical or owner.get(name) == name:
            continue
        if name in owner:
            problems.append(f"tables.{name}: a column of this name belongs to tables.{owner[name]}; rename the table")
        else:
            problems.append(
                f"tables.{name}.features: column {name!r} is not in it, but that column's own table would have the "
                "same name; add the column, or rename the table"
            )
    return [*problems, *_idle_settings(tables)]


def _idle_settings(tables: Mapping[str, TableOverrides]) -> Iterator[str]:
    """Settings that would do nothing, because those beside them make the tables of the other kind."""
    of_all = tables.get(DEFAULT_TABLE, TableOverrides())
    for name, table in tables.items():
        for setting in ("admit_after", "evict_after_samples"):
            if isinstance(table.rows, int) and getattr(table, setting) is not None:
                yield f"tables.{name}: {setting} is for dynamic tables, and rows = {table.rows}; remove one of the two"
        rows = of_all.rows if table.rows is None else table.rows
        # In [tables.default] it is for the tables that have a number of rows, which may be none.
        if name != DEFAULT_TABLE and table.out_of_range is not None and not isinstance(rows, int):
            yield f"tables.{name}: out_of_range is for tables with a number of rows; add rows, or remove it"
