"""`Run`: the results of a run, read from its directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from elastichost.api.notebook import html_page
from elastichost.atomic_write import cause_words, write_atomically
from elastichost.errors import ConfigError, DataError, PreflightError
from elastichost.metrics import RunStatus, read_status
from elastichost.run_files import JOURNAL_FILE, REPORT_FILE, RESOLVED_JOB_FILE
from elastichost.runs.events import EvaluationFinished, JournalLine
from elastichost.runs.journal import read_journal, unix_s_of, utc_now
from elastichost.runs.learning_curve import read_curve
from elastichost.runs.liveness import is_running
from elastichost.runs.result import RunResult, SampleCounts, read_result

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from elastichost.api.job import Job
    from elastichost.results.description import ExportFormat
    from elastichost.results.export import ExportReport

__all__ = ["Run"]


class Run:
    """A run on disk. `eh.train` returns it, and `eh.Run("runs/latest")` opens any other one.

    dir: its directory. Raises ConfigError when there is no run in it."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.dir = Path(directory).resolve()
        if not (self.dir / RESOLVED_JOB_FILE).is_file():
            raise ConfigError(
                f"{self.dir} is not the directory of a run",
                hint="give the dir of a run: by default runs/<name>-<UTC>-<id>",
            )

    def __repr__(self) -> str:
        result = self._result()
        state = result.status if result is not None else self._state()
        figures = "".join(f", {name} {value:.4f}" for name, value in self.metrics.items() if name in ("auc", "logloss"))
        return f"<Run {self.dir.name}: {state}{figures}>"

    def _repr_html_(self) -> str:
        result = self._result()
        facts: dict[str, object] = {"status": self.status}
        if result is not None:
            facts["samples trained"] = f"{result.samples.trained:,} of {result.samples.planned:,}"
        facts |= {name: f"{value:,.{0 if value >= 1000 else 4}f}" for name, value in self.metrics.items()}
        if self.is_resumable:
            facts["continue"] = f"eh.resume({str(self.dir)!r})"
        return html_page(f"Run {self.dir.name}", {**facts, "directory": self.dir})

    @property
    def status(self) -> str:
        """One word: done, stopped (it can be resumed), killed, quarantined, incomplete or failed; while it trains, what
        it does."""
        result = self._result()
        return result.status if result is not None else self._state()

    @property
    def is_resumable(self) -> bool:
        """Whether `eh.resume` continues it: it was stopped, or it was killed after a checkpoint."""
        result = self._result()
        return result is not None and result.is_resumable

    @property
    def result(self) -> RunResult:
        """Everything that `elastichost run --json` prints. Raises PreflightError while there is no result."""
        result = self._result()
        if result is None:
            raise PreflightError(f"{self.dir} has no result yet: the run is {self._state()}")
        return result

    @property
    def job(self) -> Job:
        """The job of the run, with all its settings."""
        from elastichost.api.job import Job
        from elastichost.config.job import load_job

        return Job(load_job(self.dir / RESOLVED_JOB_FILE, environ={}))

    @property
    def metrics(self) -> dict[str, float]:
        """Figures of the test set, such as `auc`, `logloss`, `calibration` and those of `evaluate.metrics` by their
        names (`metrics["gauc(user)"]`), and `samples_per_s`, `wall_s`. What was not measured is left out, and a
        KeyError says why."""
        result = self._result()
        if result is None:
            return _Figures(f"the run has no result yet: it is {self._state()}")
        test: dict[str, Any] = msgspec.to_builtins(result.test) if result.test is not None else {}
        known = {**test, **test.get("metrics", {})}
        figures = {name: value for name, value in known.items() if isinstance(value, float)}
        why = "it was not measured" if test else "the job has no test data, or the run was not evaluated"
        return _Figures(why, {**figures, "samples_per_s": result.samples_per_s, "wall_s": result.wall_s})

    @property
    def samples(self) -> dict[str, int]:
        """Numbers of samples over all epochs: planned, trained, skipped, quarantined."""
        counts: SampleCounts = self.result.samples
        return {name: getattr(counts, name) for name in SampleCounts.__struct_fields__}

    @property
    def history(self) -> pa.Table:
        """The learning curve and the evaluations as an Arrow table (`.to_pandas()` makes a data frame of it), sorted by
        samples. Columns: samples (int64, trained so far), loss (float64, mean of the samples since the row before),
        test_auc, test_logloss and "test_NAME" for each further figure of `evaluate.metrics` (float64, null in rows
        without an evaluation), unix_s (float64)."""
        import pyarrow as pa

        rows: dict[int, dict[str, Any]] = {}
        for point in read_curve(self.dir):
            rows[point.samples] = {"loss": point.loss, "unix_s": point.unix_s}
        for line in self.events():
            if isinstance(line.event, EvaluationFinished):
                row = rows.setdefault(line.event.samples, {})
                row.setdefault("unix_s", unix_s_of(line.time_utc))
                row |= {"test_auc": line.event.auc, "test_logloss": line.event.logloss}
                if (figures := line.event.memory.figures) is not None:
                    row |= {f"test_{name}": value for name, value in figures.metrics.items()}
        ordered = [{"samples": samples, **rows[samples]} for samples in sorted(rows)]
        further = dict.fromkeys(name for row in rows.values() for name in row if name.startswith("test_"))
        names = dict.fromkeys(("loss", "test_auc", "test_logloss", *further, "unix_s"))
        floats = [(name, pa.float64()) for name in names]
        return pa.Table.from_pylist(ordered, schema=pa.schema([("samples", pa.int64()), *floats]))

    def events(self) -> Iterator[JournalLine]:
        """Every event of the run, in order. `line.event` is typed: `isinstance(line.event, ProcessLost)`."""
        return read_journal(self.dir / JOURNAL_FILE)

    def report(self, file: str | os.PathLike[str] | None = None) -> Path:
        """Writes the page that `elastichost report` writes, one HTML file, and returns its path. file: default:
        report.html in the directory of the run. Raises PreflightError if it cannot be written."""
        from elastichost.reporting.run.assemble import read_report
        from elastichost.reporting.run.view.page import page_of

        path = Path(file) if file is not None else self.dir / REPORT_FILE
        page = page_of(read_report(self.dir, is_running=is_running(self.dir), now_utc=utc_now()))
        try:
            write_atomically(path, page.encode("utf-8", "replace"))
        except OSError as error:
            raise PreflightError(
                f"{path} cannot be written: {cause_words(error)}", hint="name another file: run.report(FILE)"
            ) from error
        return path

    def export(
        self,
        directory: str | os.PathLike[str],
        *,
        best: bool = False,
        format: ExportFormat = "torchrec",  # noqa: A002 - the name of the option of `elastichost export`
        embeddings: Sequence[str] = (),
        vectors: Mapping[str, str | os.PathLike[str]] = MappingProxyType({}),
    ) -> ExportReport:
        """Writes the trained model so that it needs no elastichost. best: the weights of the best evaluation by
        `checkpoint.keep_best`, instead of the newest ones. format: "torchrec", a plain torchrec model, or
        "pt2", one program of torch.export. embeddings: tables whose vectors are written too, as
        `embeddings/<table>.parquet` with the columns id and vector. vectors: by column of ids a Parquet file, for whose
        rows the model's method `vectors` is called; written as `vectors/<column>.parquet`. A slash in a name becomes an
        underscore. Raises ConfigError if the directory exists or a table does not, CheckpointError if the run has no
        checkpoint, ModelError if there can be no program or no vectors of it, DataError if such a file cannot be read
        or lacks a column."""
        from elastichost.results.export import export

        return export(self.dir, Path(directory), best=best, format=format, embeddings=embeddings, vectors=vectors)

    def predict(self, table: pa.Table | pandas.DataFrame | str | os.PathLike[str], *, best: bool = False) -> pa.Table:
        """Scores rows with the trained model. table: a file, here or at an address, an Arrow table or record batch, or
        a data frame, with the columns of the training data; labels are not needed. A run that was trained on CSV takes
        only text and integers as text ids. best: as for `export`. Returns a table with the scores, in the order of the
        rows. Raises DataError, ModelError, CheckpointError, and ConfigError for a table where the job reads another
        format."""
        import pyarrow.parquet as pq

        from elastichost.results.predict import predict

        with tempfile.TemporaryDirectory(prefix="elastichost-") as folder:
            output = Path(folder) / "scores.parquet"
            is_file = isinstance(table, str | os.PathLike)
            source = table if is_file else _written(table, self.job, Path(folder))
            try:
                predict(self.dir, source, output, best=best)
            except DataError as error:
                if is_file:
                    raise
                raise DataError(error.message.replace(str(source), "the table"), hint=error.hint) from None
            return pq.read_table(output)

    def _result(self) -> RunResult | None:
        return read_result(self.dir)

    def _state(self) -> str:
        try:
            status: RunStatus = read_status(self.dir)
        except PreflightError:
            return "starting"
        return status.state


class _Figures(dict[str, float]):
    """Figures by name; what is missing raises KeyError with the reason."""

    def __init__(self, why_missing: str, figures: Mapping[str, float] = MappingProxyType({})) -> None:
        super().__init__(figures)
        self._why_missing = why_missing

    def __missing__(self, name: str) -> float:
        raise KeyError(f"{name}: {self._why_missing}; there is {', '.join(self) or 'nothing'}")


def _written(table: pa.Table | pandas.DataFrame, job: Job, folder: Path) -> Path:
    """A file with these rows, in the format of the job's data."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    rows = _without_views(_arrow_rows(table))
    kind = job.spec.data.format
    if kind in ("parquet", "criteo_tsv", "synthetic"):  # all have typed columns, as Parquet has
        pq.write_table(rows, folder / "rows.parquet")
        return folder / "rows.parquet"
    if kind == "csv":
        data, csv = job.spec.data, job.spec.data.csv
        read = {*data.labels, data.weight, *data.dense, *data.categorical}
        # Columns that the job does not read may have types that CSV files have no texts for.
        rows = rows.select([place for place, name in enumerate(rows.column_names) if name in read])
        _check_words(rows, [name for name in data.categorical if "string" in csv.types.get(name, "string")])
        options = pa.csv.WriteOptions(delimiter=csv.delimiter)
        texts = _with_decimal(_with_joined_lists(rows, csv.list_delimiter), csv.decimal)
        pa.csv.write_csv(texts, folder / "rows.csv", options)
        return folder / "rows.csv"
    raise ConfigError(
        f"a table cannot be scored: the data of this run has the format {kind!r}", hint="give the path of a file"
    )


def _arrow_rows(table: Any) -> pa.Table:
    """An Arrow table, a record batch, or a data frame, as an Arrow table. Raises ConfigError for anything else."""
    import pyarrow as pa

    from elastichost.datasets.spool.row_tables import arrow_table, is_tabular

    if hasattr(table, "to_parquet") and hasattr(
        table, "columns"
    ):  # pandas, also of a version without Arrow's interface
        return pa.Table.from_pandas(table, preserve_index=False)
    if not is_tabular(table):
        raise ConfigError(
            f"a {type(table).__name__} cannot be scored", hint="give a file, an Arrow table or a data frame"
        )
    return arrow_table(table)


def _check_words(rows: pa.Table, names: Sequence[str]) -> None:
    """Raises DataError for a column of text ids whose values CSV files write in several ways, and so as several ids:
    pandas writes True and 1.0 where Arrow writes true and 1. names: the columns of text ids."""
    import pyarrow as pa

    from elastichost.datasets.arrow_columns import id_type, is_list

    for field in rows.schema:
        kind = field.type.value_type if is_list(field.type) else field.type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        has_words = pa.types.is_null(kind) or pa.types.is_integer(kind) or id_type(kind) == ("string", False)
        if field.name in names and not has_words:
            raise DataError(
                f"the table, column {field.name!r} has the type {field.type}; the run was trained on the words of a "
                "CSV file, and CSV files have several words for one such value",
                hint="make strings of the values, with the words of the training file: True is another id than true",
            )


def _without_views(rows: pa.Table) -> pa.Table:
    """The rows with plain strings in place of string views, which Arrow does not write to files."""
    from elastichost.datasets.arrow_columns import without_view

    for place, field in enumerate(rows.schema):
        if (plain := without_view(field.type)) != field.type:
            rows = rows.set_column(place, field.name, rows.column(place).cast(plain))
    return rows


def _with_joined_lists(rows: pa.Table, delimiter: str) -> pa.Table:
    """The rows with texts in place of lists, as a CSV file of the job has them. Nulls in lists are left out."""
    import pyarrow as pa

    from elastichost.datasets.arrow_columns import is_list

    for place, field in enumerate(rows.schema):
        if is_list(field.type):
            lists = rows.column(place).to_pylist()
            texts = [None if one is None else delimiter.join(_words(one)) for one in lists]
            rows = rows.set_column(place, field.name, pa.array(texts, pa.string()))
    return rows


def _with_decimal(rows: pa.Table, decimal: str) -> pa.Table:
    """The rows with texts in place of numbers that may have a fraction, as a CSV file of the job has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if decimal == ".":
        return rows
    for place, field in enumerate(rows.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            texts = pc.replace_substring(rows.column(place).cast(kind).cast(pa.string()), ".", decimal)
            rows = rows.set_column(place, field.name, texts)
    return rows


def _words(items: Sequence[object]) -> Iterator[str]:
    present = (item for item in items if item is not None)
    return (item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in present)
