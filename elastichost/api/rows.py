"""`from_iterable`: rows that Python makes, as the data of a job. They are written once, as Parquet, before the run."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from elastichost.errors import ConfigError
from elastichost.human_readable import plural
from elastichost.runs.directory import DATA_FOLDER

__all__ = [
    "SPLITS",
    "ArrowTable",
    "HuggingFaceDataset",
    "PythonRows",
    "RowSource",
    "Split",
    "from_iterable",
    "taken_rows",
]

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")
UNIT_ROWS = 65_536
MOST_UNIT_ROWS = 262_144  # as the reader of Parquet warns of larger row groups
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXAMPLE = 'yield dicts, as {"clicked": 1, "item": 7}, or Arrow tables or data frames'


class ArrowTable(Protocol):
    """A table of pyarrow, pandas, polars or another library with Arrow's interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class HuggingFaceDataset(Protocol):
    """A `datasets.Dataset` or `datasets.IterableDataset`: one split."""

    def with_format(self, type: str) -> Any: ...  # noqa: A002 - the name that library uses

    def iter(self, batch_size: int) -> Any: ...


RowSource = Iterable[Any] | Callable[[], Any] | ArrowTable | HuggingFaceDataset


class PythonRows:
    """Rows that `from_iterable` takes, for `eh.Data(train=...)` or `eh.Data(test=...)`."""

    def __init__(self, source: RowSource, name: str, fingerprint: str, unit_rows: int, schema: Any) -> None:
        self._source, self._name, self._unit_rows, self._schema = source, name, unit_rows, schema
        told = [fingerprint, unit_rows, str(schema or "")]
        self._identity = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
        self._written: Path | None = None  # where they are already
        self._is_begun = False

    def write(self, split: Split, run_dir: Path, needed: tuple[str, ...], told: Callable[[str], None]) -> Path:
        """Makes sure that the rows lie beside the run, and returns the path of their Parquet file. needed: columns that
        the job reads. told: gets a line of progress. Raises DataError, ConfigError, and what the source raises."""
        from elastichost.datasets.spool.spool_file import SpoolPlan, write_spool  # pyarrow is loaded by this import

        title = f"data.{split}" + (f" ({self._name})" if self._name else "")
        plan = SpoolPlan(title, self._identity, self._unit_rows, self._schema, needed, self._written)
        path = run_dir / DATA_FOLDER / f"{split}.parquet"
        if self._name:
            path = run_dir.parent / DATA_FOLDER / f"{self._name}-{self._identity[:12]}.parquet"
        rows = write_spool(path, plan, self._items, lambda count: told(f"{title}: {plural(count, 'row')} written"))
        told(f"{title}: {plural(rows, 'row')} in {path}")
        self._written = path
        return path

    def __repr__(self) -> str:
        return f"<rows of {self._name or _name_of(self._source)}>"

    def _items(self) -> Iterator[Any]:
        source = self._source
        if self._is_begun and isinstance(source, Iterator):
            raise ConfigError(
                f"{self!r} were read before, and an iterator can be read only once",
                hint="give a function that returns one: eh.from_iterable(make_rows), without calling it",
            )
        self._is_begun = True
        if callable(source) and not _is_hugging_face(source):
            source = source()
        yield from _parts(source, self._unit_rows)


def from_iterable(
    source: RowSource,
    *,
    name: str = "",
    fingerprint: str | int = "",
    unit_rows: int = UNIT_ROWS,
    schema: Any = None,
) -> PythonRows:
    """Rows that Python makes, as training or test data: `eh.Data(train=eh.from_iterable(make_rows), ...)`.

    source: an iterable, or better a function without arguments that returns one, such as a generator function. It
    yields rows as dicts, Arrow tables or record batches, or data frames. A table, a data frame, or a dataset of Hugging
    Face may be the source itself.

    Before the run begins all rows are written as Parquet: to `data/` in the directory of the run. So the run can give
    each sample to any worker, any number of times, and `eh.resume` needs neither this object nor the function. A spool
    that is cut off, also by a kill, is never read; it is written anew.

    name: the rows are kept for later runs, in `data/` beside the directory of the run, and are not made again as long
    as fingerprint, unit_rows, schema and the text of the function stay the same.
    fingerprint: a text or number that changes with the rows, as a date. A dataset of Hugging Face has its own. With it,
    rows that an earlier try wrote to the directory of the run are used again. Rows with a name that do not come from a
    function need one.
    unit_rows: rows of a Parquet row group, 1 to 262,144. A row group is what a worker decodes at once; at most one is
    in memory while the rows are written.
    schema: a pyarrow.Schema with the types of all columns; None: as pyarrow infers them from the first `unit_rows`
    dicts, or as the first table has them. A key that a dict lacks is a null.

    Raises ConfigError for a wrong argument. `train` and `start` read the rows. They raise DataError, which names row
    (from 0), column, value and the expected type, for a value that does not fit; what `source` raises passes through.
    """
    if not isinstance(name, str) or (name and not NAME.fullmatch(name)):
        raise ConfigError(f"name = {name!r}: allowed: letters, digits, '.', '_' and '-'", hint='for example "clicks"')
    if type(unit_rows) is not int or not 1 <= unit_rows <= MOST_UNIT_ROWS:
        raise ConfigError(f"unit_rows = {unit_rows!r}: allowed: a whole number from 1 to {MOST_UNIT_ROWS:,}")
    if schema is not None and not (hasattr(schema, "names") and hasattr(schema, "types")):
        raise ConfigError(f"schema is a {type(schema).__name__}", hint="give a pyarrow.schema([(name, type), ...])")
    _check_source(source)
    told = str(fingerprint) or str(getattr(source, "_fingerprint", "") if _is_hugging_face(source) else "")
    if name:
        text = _text_of(source)
        if not told and not text:
            raise ConfigError(
                f"nothing tells whether other rows that are named {name!r} are the same ones",
                hint='add a fingerprint that changes with them, as fingerprint="2026-11-26"; or give a function',
            )
        told += f"\0{text}"
    # Without any of these only this object knows which rows it has.
    return PythonRows(source, name, told or secrets.token_hex(16), unit_rows, schema)


def taken_rows(fields: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[Split, PythonRows]]:
    """(fields of [data] with the name of a file in place of rows, the rows by split). Raises ConfigError."""
    rows: dict[Split, PythonRows] = {}
    named = dict(fields)
    for split in SPLITS:
        value = fields.get(split)
        if isinstance(value, PythonRows) or _is_hugging_face(value) or _is_tabular(value):
            rows[split] = value if isinstance(value, PythonRows) else from_iterable(cast(RowSource, value))
            named[split] = f"{DATA_FOLDER}/{split}.parquet"
        elif isinstance(value, Mapping):
            _check_source(value)
        elif (
            callable(value)
            or isinstance(value, Iterator)
            or (isinstance(value, list | tuple) and any(isinstance(one, PythonRows | Mapping) for one in value))
        ):
            raise ConfigError(
                f"{where}: {split} is a {type(value).__name__}, not the name of a file",
                hint=f"for rows write {split}=eh.from_iterable(...), alone and not in a list",
            )
    if rows and fields.get("format", "parquet") != "parquet":
        raise ConfigError(
            f"{where}: format = {fields['format']!r} beside rows of Python, which are written as Parquet",
            hint="leave out format; files beside them must be Parquet, too",
        )
    return named, rows


def _check_source(source: Any) -> None:
    if isinstance(source, str | Path):
        raise ConfigError(f"{str(source)!r} is a path, not rows", hint=f"write eh.Data(train={str(source)!r}, ...)")
    if isinstance(source, Mapping):
        if source and all(_is_hugging_face(one) for one in source.values()):
            first = next(iter(source))
            raise ConfigError(
                f"the dataset has the splits {', '.join(map(str, source))}",
                hint=f"give one of them: dataset[{first!r}]",
            )
        raise ConfigError("a mapping is one row, not rows", hint="of columns make a table: pyarrow.table(columns)")
    if isinstance(source, type) or not (
        callable(source) or isinstance(source, Iterable) or _is_tabular(source) or _is_hugging_face(source)
    ):
        raise ConfigError(f"a {type(source).__name__} has no rows", hint=f"give an iterable, or a function; {EXAMPLE}")


def _parts(source: Any, unit_rows: int) -> Iterator[Any]:
    """What a source has: rows, tables and frames."""
    _check_source(source)
    if _is_hugging_face(source):  # Arrow already: its tables are taken as they are
        yield from source.with_format("arrow").iter(batch_size=unit_rows)
    elif _is_tabular(source):
        yield source
    else:
        yield from source


def _is_tabular(value: object) -> bool:
    if isinstance(value, type) or not (hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
        return False
    from elastichost.datasets.spool.row_tables import is_tabular

    return is_tabular(value)


def _is_hugging_face(value: object) -> bool:
    """Whether it is one split of a dataset of Hugging Face. Their package need not be installed to know that."""
    has_its_methods = hasattr(value, "with_format") and hasattr(value, "iter")
    return has_its_methods and any(kind.__module__.partition(".")[0] == "datasets" for kind in type(value).__mro__)


def _name_of(source: object) -> str:
    return str(getattr(source, "__name__", "") or f"a {type(source).__name__}")


def _text_of(source: Any) -> str:
    """The text of a function, so that rows of an older version of it are not used; "" if there is none."""
    try:
        return inspect.getsource(source) if callable(source) else ""
    except (OSError, TypeError):
        return ""
