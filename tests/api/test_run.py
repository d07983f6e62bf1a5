"""Results of a run: what is said about figures that are not there."""

from __future__ import annotations

import html
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import elastichost as eh
from elastichost.api.run import _written
from elastichost.datasets.settings import data_settings
from elastichost.errors import ConfigError, DataError, PreflightError
from elastichost.runs.result import ProcessCounts, RunOutcome, RunResult, SampleCounts
from tests.datasets.conftest import all_batches, reader_of


def run_with(folder: Path, status: RunOutcome, checkpoint: str = "") -> eh.Run:
    result = RunResult(
        status=status,
        exit_code=0,
        run_dir=str(folder),
        samples=SampleCounts(planned=2000, trained=500, skipped=0, quarantined=0),
        test=None,
        samples_per_s=1234.0,
        wall_s=2.5,
        processes=ProcessCounts(workers=1, servers=1, restarts=0),
        arena_bytes=0,
        epochs=1,
        torn_batches=0,
        checkpoint=checkpoint,
    )
    (folder / "job.resolved.toml").write_text('[model]\nbuild = "a:b"\n[data]\nformat = "synthetic"\n')
    (folder / "result.json").write_bytes(result.to_bytes())
    return eh.Run(folder)


def test_a_figure_that_is_missing_says_why(tmp_path: Path) -> None:
    run = run_with(tmp_path, "done")
    assert run.metrics == {"samples_per_s": 1234.0, "wall_s": 2.5}
    with pytest.raises(KeyError, match=r"auc: the job has no test data.*there is samples_per_s, wall_s"):
        run.metrics["auc"]


@pytest.mark.parametrize(
    ("status", "checkpoint", "is_resumable"),
    [
        ("stopped", "", True),
        ("killed", "runs/x/checkpoints/step-500", True),
        ("killed", "", False),
        ("done", "", False),
        ("failed", "", False),
        ("failed", "runs/x/checkpoints/step-500", True),
    ],
)
def test_a_run_that_can_be_resumed_says_so(
    tmp_path: Path, status: RunOutcome, checkpoint: str, is_resumable: bool
) -> None:
    run = run_with(tmp_path, status, checkpoint)
    assert run.is_resumable is is_resumable
    shown = html.unescape(run._repr_html_())
    assert (f"eh.resume('{tmp_path}')" in shown) is is_resumable
    assert "500 of 2,000" in shown


def test_what_is_no_table_cannot_be_scored(tmp_path: Path) -> None:
    run = run_with(tmp_path, "done")
    with pytest.raises(ConfigError, match="a list cannot be scored"):
        run.predict([1, 2])  # type: ignore[arg-type]


def test_a_report_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    run = run_with(tmp_path, "done")
    with pytest.raises(PreflightError, match=r"absent/report\.html cannot be written"):
        run.report(tmp_path / "absent" / "report.html")


def test_lists_of_a_table_are_written_as_the_csv_of_the_job_has_them(tmp_path: Path) -> None:
    job = eh.Job.of("a:b", {"format": "csv", "train": "x.csv", "label": "y", "categorical": ["seen", "note"]})
    job = job.with_settings(data={"csv": {"types": {"seen": "list[int]"}, "list_delimiter": ";"}})
    table = pa.table({"seen": [[1, 2], None, []], "note": ["a", "b", "c"]})
    written = _written(table, job, tmp_path)
    assert written.read_text().splitlines()[1:] == ['"1;2","a"', ',"b"', '"","c"']


def test_numbers_of_a_table_are_written_with_the_decimal_comma_of_the_job(tmp_path: Path) -> None:
    data = {
        "format": "csv",
        "train": "x.csv",
        "label": "y",
        "dense": ["price", "tax", "rate"],
        "categorical": ["count"],
    }
    job = eh.Job.of("a:b", data)
    job = job.with_settings(data={"csv": {"delimiter": ";", "decimal": ","}})
    rates = pa.array([0.5, 2.0, 0.5]).dictionary_encode()
    columns = {"price": [1541.87, None, -0.5], "count": [1, 2, 3], "tax": [Decimal("0.19")] * 3, "rate": rates}
    table = pa.table(columns)
    written = _written(table, job, tmp_path)
    assert written.read_text().splitlines()[1:] == [
        '"1541,87";1;"0,19";"0,5"',
        ';2;"0,19";"2"',
        '"-0,5";3;"0,19";"0,5"',
    ]
    read = reader_of(data_settings(job.spec, "test", files=[str(written)], labels_required=False))
    (batch,) = all_batches(read)
    np.testing.assert_allclose(batch.dense, [[1541.87, 0.19, 0.5], [0, 0.19, 2], [-0.5, 0.19, 0.5]], rtol=1e-6)


def csv_job(**types: str) -> eh.Job:
    job = eh.Job.of("a:b", {"format": "csv", "train": "x.csv", "label": "y", "categorical": list(types)})
    return job.with_settings(data={"csv": {"types": types}})


def test_nulls_in_lists_of_a_table_are_no_ids(tmp_path: Path) -> None:
    table = pa.table({"words": [["a", None], [None], ["b", "c"]], "numbers": [[1, None, 2], [], None]})
    written = _written(table, csv_job(words="list[string]", numbers="list[int]"), tmp_path)
    assert written.read_text().splitlines()[1:] == ['"a","1|2"', '"",""', '"b|c",']


AMBIGUOUS = [
    ("string", pa.array([True, None])),
    ("string", pa.array([True, False]).dictionary_encode()),
    ("string", pa.array([1.0, None])),  # integers of pandas beside a missing one
    ("string", pa.array([0, 1], pa.timestamp("ns"))),
    ("list[string]", pa.array([[True], None])),
    ("list[string]", pa.array([[1.5], [None]])),
]


@pytest.mark.parametrize(("kind", "values"), AMBIGUOUS)
def test_values_that_csv_files_write_in_several_ways_are_no_text_ids(
    tmp_path: Path, kind: str, values: pa.Array
) -> None:
    """pandas writes True and 1.0, Arrow true and 1: they were other ids than in training, without an error."""
    with pytest.raises(
        DataError, match="the table, column 'flag' has the type .*trained on the words of a CSV"
    ) as raised:
        _written(pa.table({"flag": values}), csv_job(flag=kind), tmp_path)
    assert "words of the training file" in raised.value.hint


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["True", "False"]),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([7, None]),
        pa.array([7, 8]).dictionary_encode(),
        pa.array([b"a", b"b"]),
        pa.nulls(2),
    ],
)
def test_text_and_integers_are_text_ids_of_a_csv_file(tmp_path: Path, values: pa.Array) -> None:
    written = _written(pa.table({"flag": values, "price": [True, False]}), csv_job(flag="string"), tmp_path)
    words = ["" if one is None else str(one) for one in values.cast(pa.string()).to_pylist()]
    assert [line.split(",")[0].strip('"') for line in written.read_text().splitlines()[1:]] == words
