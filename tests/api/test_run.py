"""Results of a run: what is said about figures that are not there."""

from __future__ import annotations

import html
from pathlib import Path

import pyarrow as pa
import pytest

import elastichost as eh
from elastichost.api.run import _written
from elastichost.errors import ConfigError, PreflightError
from elastichost.runs.result import ProcessCounts, RunOutcome, RunResult, SampleCounts


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
    job = eh.Job.of("a:b", {"format": "csv", "train": "x.csv", "label": "y", "categorical": ["seen"]})
    job = job.with_settings(data={"csv": {"types": {"seen": "list[int]"}, "list_delimiter": ";"}})
    table = pa.table({"seen": [[1, 2], None, []], "note": ["a", "b", "c"]})
    written = _written(table, job, tmp_path)
    assert written.read_text().splitlines()[1:] == ['"1;2","a"', ',"b"', '"","c"']
