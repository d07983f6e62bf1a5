"""The section [data] of the job file: files, columns, the treatment of bad values, and the synthetic generator."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from elastichost.config.base import Section, refuse
from elastichost.config.sections.input import InputSettings
from elastichost.config.sections.remote import RemoteSettings
from elastichost.config.values import Count, CountFromOne, FormatName, Label, Seed, Strings, is_whole

__all__ = ["CsvSettings", "DataColumns", "DataSection", "SyntheticSettings", "implied_columns", "is_delimiter"]


def is_delimiter(character: str) -> bool:
    """Whether a character may separate the fields of a CSV file: Arrow takes ASCII only, and quotes and line ends mean
    something else there."""
    return character.isascii() and character not in '"\r\n'


class CsvSettings(Section):
    """`data.csv`: how the fields of CSV files are separated, and the types of categorical columns."""

    types: dict[str, Literal["int", "string", "list[int]", "list[string]"]] = Field(
        default_factory=dict,
        description='Type of each categorical column of a CSV file, for example { item = "int" }. '
        "A categorical column without a type here holds strings.",
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        default=",", description="The one character between two fields of a line."
    )
    list_delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        default="|", description="The one character between two elements of a list, within one field."
    )
    decimal: Literal[".", ","] = Field(
        default=".",
        description="The character before the fraction of a number, in dense columns, labels and weights. Thousands "
        "are not separated.",
    )

    @model_validator(mode="after")
    def _delimiter_is_plain(self) -> CsvSettings:
        if not is_delimiter(self.delimiter):
            raise refuse(f"an ASCII character as delimiter, but no quote and no line end: {self.delimiter!r} was given")
        if self.delimiter == self.list_delimiter and any(kind.startswith("list") for kind in self.types.values()):
            raise refuse(f"a list_delimiter that differs from the delimiter: both are {self.delimiter!r}")
        return self

    @model_validator(mode="after")
    def _decimal_is_no_delimiter(self) -> CsvSettings:
        if self.decimal == self.delimiter:
            raise refuse(
                f'a decimal that differs from the delimiter: both are "{self.decimal}"; set data.csv.delimiter or '
                "data.csv.decimal"
            )
        return self


class SyntheticSettings(Section):
    """`data.synthetic`: the shape of generated data, for format "synthetic". The labels follow a known model."""

    rows: CountFromOne = Field(default=1_000_000, description="Number of training samples.")
    test_rows: CountFromOne = Field(default=100_000, description="Number of test samples.")
    tables: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=26, description="Number of categorical columns, named c0, c1, ...; each has its own table."
    )
    table_rows: Annotated[int, Field(ge=1, le=2**31)] = Field(
        default=100_000, description="Number of different ids in each categorical column."
    )
    zipf: Annotated[float, Field(ge=0, le=4)] = Field(
        default=1.05,
        description="Exponent of the power law that the frequency of ids follows. With 0, all ids are equally "
        "frequent.",
    )
    dense: Annotated[int, Field(ge=0, le=65_536)] = Field(
        default=13, description="Number of dense columns, named d0, d1, ..."
    )
    multi_valued: Count = Field(
        default=0,
        description="Number of categorical columns, counted from the last one, that hold a list of ids in each sample. "
        "At most `tables`.",
    )
    list_length: Annotated[int, Field(ge=1, le=64)] = Field(
        default=5,
        description="Longest list of ids in a multi-valued column. The lengths are uniform between 0 and this number.",
    )
    interactions: Annotated[int, Field(ge=0, le=64)] = Field(
        default=8,
        description="Number of pairs of categorical columns that affect the label together.",
    )
    seed: Seed = Field(
        default=0, description="Seed of the generator. The data depends on this seed and not on `job.seed`."
    )
    unit_rows: Annotated[int, Field(ge=1, le=262_144)] = Field(
        default=65_536, description="Number of samples in one unit: the part of the data that a reader loads at once."
    )

    @model_validator(mode="after")
    def _lists_are_tables(self) -> SyntheticSettings:
        if self.multi_valued > self.tables:
            raise refuse(f"multi_valued from 0 to tables ({self.tables})")
        return self


class DataColumns(Section):
    """The columns of a format with fixed columns."""

    label: str
    dense: tuple[str, ...]
    categorical: tuple[str, ...]


def implied_columns(format_name: str, synthetic: SyntheticSettings | None = None) -> DataColumns | None:
    """The fixed columns of `criteo_tsv` and `synthetic`; None for other formats: the job names their columns."""
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
    """`[data]`: the files of training and test data, their columns, and how bad values are treated."""

    train: Strings = Field(
        default=(),
        description="Files of training data: paths or globs, relative to the job file, or addresses of web servers and "
        'stores (s3://...). Required, except with format "synthetic".',
    )
    test: Strings = Field(
        default=(),
        description="Files of test data, as data.train. Without them nothing is evaluated. "
        'Not allowed with format "synthetic", which generates its test data.',
    )
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="Share of the training data that is held back as test data: the last rows of the files, in their "
        "order. They are not trained. 0: none. Use it instead of `test`; shuffle the rows of the files before if they "
        "are sorted by anything but time.",
    )
    format: FormatName = Field(
        default="parquet",
        description='Format of the files: "parquet", "csv" (with a header line), "criteo_tsv", or "synthetic" (no '
        'files: generated data). "package.module:Reader" names a reader class of your own.',
    )
    label: Label = Field(
        default="",
        description="Column of the label, which is 0 or 1. A list of columns trains several labels (multi-task). "
        "Required, except with formats whose columns are fixed.",
    )
    weight: str = Field(
        default="",
        description='Column of sample weights, which are numbers >= 0. "": every sample has weight 1. The loss of a '
        "batch is the mean weighted by them; in sync mode that of each micro-batch.",
    )
    dense: Strings = Field(default=(), description="Columns of numbers that the model gets as dense features.")
    categorical: Strings = Field(
        default=(),
        description="Columns of ids: integers, strings, or lists of them. Required, except with formats whose columns "
        "are fixed.",
    )
    order: Literal["file", "shuffle_groups", "shuffle"] = Field(
        default="file",
        description='Order of the samples in an epoch. "file": as in the files. "shuffle_groups": units (such as '
        'Parquet row groups) in a random order, the samples within a unit as in the file. "shuffle": also the samples '
        "within each unit in a random order.",
    )
    bad_rows: Literal["stop", "skip"] = Field(
        default="stop",
        description='What happens at a row with a wrong value, such as a label that is not 0 or 1. "stop": the job '
        'ends with an error that names file, row and column. "skip": the row is left out and counted.',
    )
    limit_rows: Count = Field(
        default=0, description="Train on the first N rows only. 0: all rows. Test data is not limited."
    )
    null_fill: float = Field(
        default=0.0,
        description="Value that replaces a null or NaN in a dense column. It is not changed by `dense_transform`. A "
        "warning tells how many NaN the first rows have.",
    )
    dense_transform: Literal["none", "log1p", "signed_log1p"] = Field(
        default="none",
        description='Transform of dense values. "log1p": x becomes log(1 + max(x, 0)). "signed_log1p": x becomes '
        "log(1 + |x|) with the sign of x.",
    )
    csv: CsvSettings = CsvSettings()
    synthetic: SyntheticSettings = SyntheticSettings()
    input: InputSettings = InputSettings()
    remote: RemoteSettings = RemoteSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_implied_columns(cls, raw: object) -> object:
        if not isinstance(raw, dict):
            return raw
        shape = raw.get("synthetic", SyntheticSettings())
        if isinstance(shape, dict):
            known = {key: shape[key] for key in ("tables", "dense") if is_whole(shape.get(key))}
            in_range = 1 <= known.get("tables", 1) <= 4096 and 0 <= known.get("dense", 0) <= 65_536
            shape = SyntheticSettings(**known) if in_range else SyntheticSettings()
        implied = implied_columns(str(raw.get("format")), shape if isinstance(shape, SyntheticSettings) else None)
        if implied is None:
            return raw
        return {"label": implied.label, "dense": implied.dense, "categorical": implied.categorical, **raw}

    @property
    def has_test(self) -> bool:
        """Whether there is test data, on which the model is evaluated."""
        return bool(self.test) or self.test_fraction > 0 or self.format == "synthetic"

    @property
    def has_own_reader(self) -> bool:
        """Whether a reader of the user's own, `package.module:Reader`, reads the data."""
        return ":" in self.format

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns, always as a tuple."""
        return (self.label,) if isinstance(self.label, str) else self.label
