"""The job file as types: what may be written, what is allowed, what is the default.

Every class is one section of the TOML file and every attribute one key, so `job.train.batch_size` is
`batch_size` of `[train]`. Values are checked here one by one; `config` reads files and explains errors.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from elastichost.config.base import Section, refuse
from elastichost.config.remote import RemoteSettings

__all__ = [
    "BUILT_IN_FORMATS",
    "DEFAULT_TABLE",
    "CountFromOne",
    "CsvSettings",
    "DataSection",
    "DenseOptimizerSettings",
    "EarlyStopSettings",
    "EvaluateSection",
    "JobSection",
    "ModelSection",
    "NotNegative",
    "Parallelism",
    "Positive",
    "ResourcesSection",
    "RowOptimizerOverrides",
    "RowOptimizerSettings",
    "ScheduleSettings",
    "Section",
    "SyntheticSettings",
    "TableOverrides",
    "TrainSection",
    "implied_columns",
    "refuse",
]

BUILT_IN_FORMATS = ("parquet", "csv", "criteo_tsv", "synthetic")
NO_ADAM = '"sgd", "adagrad" or "rowwise_adagrad"; table optimizer "adam" is not supported'


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _string_tuple(value: object) -> object:
    """TOML lists become tuples; one string stands for a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _label(value: object) -> str | tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not names or not all(isinstance(name, str) for name in names):
        raise refuse("a column name, or a list of them (multi-task)")
    return value if isinstance(value, str) else names


def _range(word: str, least: int) -> PlainValidator:
    """`word`, a whole number, or [min, max]."""

    def check(value: object) -> str | int | tuple[int, int]:
        if value == word and isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        if isinstance(value, list | tuple) and len(value) == 2 and all(_is_whole(bound) for bound in value):
            low, high = value
            if least <= low <= high:
                return low, high
        raise refuse(f'"{word}", a whole number >= {least}, or [min, max] with {least} <= min <= max')

    return PlainValidator(check)


def _range_schema(word: str, least: int) -> WithJsonSchema:
    number: dict[str, Any] = {"type": "integer", "minimum": least}
    pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
    return WithJsonSchema({"anyOf": [{"const": word}, number, pair]})


def _memory(value: object) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?\s*(%|[KMGT]i?B|B)", value.strip()):
        number = float(re.split(r"[%KMGTB\s]", value.strip(), maxsplit=1)[0])
        if number > 0 and ("%" not in value or number <= 100):
            return value.strip()
    raise refuse('a share like "80%" (at most 100%), a size like "4GiB" or "500MB", or a number of bytes')


def _rows(value: object) -> str | int:
    if value == "dynamic" and isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**40:
        return value
    raise refuse('"dynamic", or a whole number from 1 to 2**40')


def _row_optimizer_name(value: object) -> object:
    if value == "adam":
        raise refuse(NO_ADAM)
    return value


def _format(value: object) -> str:
    if isinstance(value, str) and (value in BUILT_IN_FORMATS or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value)):
        return value
    words = ", ".join(f'"{word}"' for word in BUILT_IN_FORMATS)
    raise refuse(f'{words}, or "package.module:Reader"')


def _build(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"([A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*", value):
        return value
    raise refuse('"package.module:function" or "file.py:function"')


def _init(value: object) -> str:
    number = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
    if isinstance(value, str):
        text = value.replace(" ", "")
        if re.fullmatch(rf"constant\({number}\)", text):
            return value
        if re.fullmatch(rf"uniform\({number},{number}\)", text):
            low, high = text[8:-1].split(",")
            if float(low) <= float(high):
                return value
    raise refuse('"uniform(low, high)" with low <= high, or "constant(value)"')


def _plain_values(value: object) -> object:
    """Arguments of the build function must survive TOML and JSON."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)
        elif not isinstance(item, str | int | float | bool):
            raise refuse("strings, numbers, booleans, lists and tables")
    return value


Strings = Annotated[tuple[str, ...], BeforeValidator(_string_tuple)]
Label = Annotated[
    str | tuple[str, ...],
    PlainValidator(_label),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Parallelism = str | int | tuple[int, int]
AtLeastOne = Annotated[Parallelism, _range("auto", 1), _range_schema("auto", 1)]
AtLeastZero = Annotated[Parallelism, _range("auto", 0), _range_schema("auto", 0)]
CoreCount = Annotated[Parallelism, _range("all", 1), _range_schema("all", 1)]
MemoryAmount = Annotated[
    str | int,
    PlainValidator(_memory),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}]}),
]
RowCount = Annotated[
    str | int,
    PlainValidator(_rows),
    WithJsonSchema({"anyOf": [{"const": "dynamic"}, {"type": "integer", "minimum": 1, "maximum": 2**40}]}),
]
InitRule = Annotated[str, PlainValidator(_init), WithJsonSchema({"type": "string"})]
RowOptimizerName = Annotated[Literal["sgd", "adagrad", "rowwise_adagrad"], BeforeValidator(_row_optimizer_name)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=0)]
CountFromOne = Annotated[int, Field(ge=1)]


class JobSection(Section):
    """`[job]`: name (default: the job file's) and seed."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "job"
    seed: Seed = 0


class ModelSection(Section):
    """`[model]`: the build function, its arguments, what the module's forward gives, and whether torchrec's own dense
    modules are replaced by fused ones of the same mathematics."""

    build: Annotated[str, PlainValidator(_build), WithJsonSchema({"type": "string"})]
    args: Annotated[dict[str, Any], BeforeValidator(_plain_values)] = Field(default_factory=dict)
    outputs: Literal["logits", "probabilities", "loss"] = "logits"
    fused: bool = True


class CsvSettings(Section):
    """`data.csv`: an undeclared categorical column holds strings."""

    types: dict[str, Literal["int", "string", "list[int]", "list[string]"]] = Field(default_factory=dict)
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    list_delimiter: Annotated[str, Field(min_length=1, max_length=1)] = "|"


class SyntheticSettings(Section):
    """`data.synthetic`: the built-in generator with planted truth."""

    rows: CountFromOne = 1_000_000
    test_rows: CountFromOne = 100_000
    tables: Annotated[int, Field(ge=1, le=4096)] = 26
    table_rows: Annotated[int, Field(ge=1, le=2**31)] = 100_000
    zipf: Annotated[float, Field(ge=0, le=4)] = 1.05
    dense: Annotated[int, Field(ge=0, le=65_536)] = 13
    multi_valued: Count = 0
    list_length: Annotated[int, Field(ge=1, le=64)] = 5
    interactions: Annotated[int, Field(ge=0, le=64)] = 8
    seed: Seed = 0
    unit_rows: Annotated[int, Field(ge=1, le=262_144)] = 65_536

    @model_validator(mode="after")
    def _lists_are_tables(self) -> SyntheticSettings:
        if self.multi_valued > self.tables:
            raise refuse(f"multi_valued from 0 to tables ({self.tables})")
        return self


class DataColumns(Section):
    """The columns a format brings along by itself."""

    label: str
    dense: tuple[str, ...]
    categorical: tuple[str, ...]


def implied_columns(format_name: str, synthetic: SyntheticSettings | None = None) -> DataColumns | None:
    """Columns that `criteo_tsv` and `synthetic` imply; None for formats whose columns the job names."""
    if format_name == "criteo_tsv":
        dense, categorical = range(1, 14), range(1, 27)
        return DataColumns(
            label="label", dense=tuple(f"I{i}" for i in dense), categorical=tuple(f"C{i}" for i in categorical)
        )
    if format_name == "synthetic":
        shape = synthetic or SyntheticSettings()
        dense_names = tuple(f"d{i}" for i in range(shape.dense))
        return DataColumns(label="label", dense=dense_names, categorical=tuple(f"c{i}" for i in range(shape.tables)))
    return None


class DataSection(Section):
    """`[data]`: files (globs), their columns, what to do with what is wrong in them, and how fast they may be read."""

    train: Strings = ()
    test: Strings = ()
    format: Annotated[str, PlainValidator(_format), WithJsonSchema({"type": "string"})] = "parquet"
    label: Label = ""
    weight: str = ""
    dense: Strings = ()
    categorical: Strings = ()
    order: Literal["file", "shuffle_groups", "shuffle"] = "file"
    bad_rows: Literal["stop", "skip"] = "stop"
    limit_rows: Count = 0
    null_fill: float = 0.0
    dense_transform: Literal["none", "log1p"] = "none"
    csv: CsvSettings = CsvSettings()
    synthetic: SyntheticSettings = SyntheticSettings()
    remote: RemoteSettings = RemoteSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_implied_columns(cls, raw: object) -> object:
        if not isinstance(raw, dict):
            return raw
        shape = raw.get("synthetic", SyntheticSettings())
        if isinstance(shape, dict):
            known = {key: shape[key] for key in ("tables", "dense") if _is_whole(shape.get(key))}
            in_range = 1 <= known.get("tables", 1) <= 4096 and 0 <= known.get("dense", 0) <= 65_536
            shape = SyntheticSettings(**known) if in_range else SyntheticSettings()
        implied = implied_columns(str(raw.get("format")), shape if isinstance(shape, SyntheticSettings) else None)
        if implied is None:
            return raw
        return {"label": implied.label, "dense": implied.dense, "categorical": implied.categorical, **raw}

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns, always as a tuple."""
        return (self.label,) if isinstance(self.label, str) else self.label


class RowOptimizerSettings(Section):
    """`train.optimizer_rows`: what the fused kernels of rows offer."""

    name: RowOptimizerName = "rowwise_adagrad"
    lr: Positive = 0.1
    eps: NotNegative = 1e-8


class RowOptimizerOverrides(Section):
    """A table's `optimizer`: only what differs from `train.optimizer_rows`."""

    name: RowOptimizerName | None = None
    lr: Positive | None = None
    eps: NotNegative | None = None


DEFAULT_TABLE = "default"  # the name of the section whose settings hold for every table


class TableOverrides(Section):
    """`[tables.<name>]`: what differs from `[tables.default]`; None: not given."""

    features: Strings | None = None
    dim: Annotated[int, Field(ge=1, le=4096)] | None = None
    rows: RowCount | None = None
    init: InitRule | None = None
    out_of_range: Literal["error", "modulo"] | None = None
    pooling: Literal["sum", "mean"] | None = None
    precision: Literal["float32", "bfloat16"] | None = None
    optimizer: RowOptimizerOverrides | None = None
    admit_after: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    evict_after_samples: Count | None = None


class DenseOptimizerSettings(Section):
    """`train.optimizer_dense`: beta1 and beta2 are adam's, momentum is sgd's."""

    name: Literal["sgd", "adagrad", "adam"] = "adam"
    lr: Positive = 1e-3
    beta1: Share = 0.9
    beta2: Share = 0.999
    eps: NotNegative = 1e-8
    weight_decay: NotNegative = 0.0
    momentum: Share = 0.0


class ScheduleSettings(Section):
    """`train.schedule`: linear warm-up over so many samples, then constant."""

    name: Literal["constant"] = "constant"
    warmup_samples: Count = 0

    def scale(self, samples: int) -> float:
        """Factor of the learning rates for a batch that ends with this sample."""
        return 1.0 if self.warmup_samples <= 0 else min(1.0, samples / self.warmup_samples)


class TrainSection(Section):
    """`[train]`: how the model learns; `batch_size` is per worker; in sync mode it is the global one, cut into
    `micro_batches` for the workers. any_cpu: sync mode goes on also where CPU features differ, with other bits."""

    epochs: CountFromOne = 1
    batch_size: Annotated[int, Field(ge=1, le=1_048_576)] = 512
    mode: Literal["async", "bounded", "sync"] = "async"
    staleness: Count = 4
    micro_batches: Annotated[int, Field(ge=1, le=128)] = 4
    access: Literal["auto", "direct", "served"] = "auto"
    any_cpu: bool = False
    optimizer_rows: RowOptimizerSettings = RowOptimizerSettings()
    optimizer_dense: DenseOptimizerSettings = DenseOptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    non_finite: Literal["stop", "skip", "roll_back"] = "stop"


class EarlyStopSettings(Section):
    """`evaluate.early_stop`: stop after `patience` evaluations without a better `metric`; 0: never."""

    metric: Literal["auc", "logloss"] = "auc"
    patience: Count = 0


class EvaluateSection(Section):
    """`[evaluate]`: every so many trained samples; 0: at the end."""

    every_samples: Count = 0
    early_stop: EarlyStopSettings = EarlyStopSettings()


class ResourcesSection(Section):
    """`[resources]`: a word, a number, or a [min, max] that bounds the tuner; restarts are per process; hosts > 1: so
    many are emulated on this one, each with rows of its own, and PS are dealt to them. most_without_row: share of the
    ids looked up while training that may have no row for want of memory; with more the run is "incomplete"."""

    cores: CoreCount = "all"
    memory: MemoryAmount = "80%"
    most_without_row: Annotated[float, Field(ge=0, le=1)] = 0.01
    workers: AtLeastOne = "auto"
    servers: AtLeastOne = "auto"
    hosts: Annotated[int, Field(ge=1, le=16)] = 1
    gpus: AtLeastZero = 0
    gpu_memory: MemoryAmount = "90%"
    restarts: Count = 3
    restart_window_s: Positive = 60.0
