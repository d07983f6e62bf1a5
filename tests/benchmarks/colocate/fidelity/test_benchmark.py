"""The command compares kept records; recording them takes minutes of a quiet machine."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from benchmarks.colocate.arms import OURS, SHIPPED
from benchmarks.colocate.fidelity import benchmark
from benchmarks.colocate.jobs import SHAPES, jobs_of
from benchmarks.colocate.recorded import ArmRun, Campaign
from benchmarks.colocate.result_store import Keep
from benchmarks.harness.machine import read_machine
from tests.benchmarks.colocate.fidelity.test_calibration import recorded, single


@pytest.fixture
def records(tmp_path: Path) -> Path:
    keep = Keep(tmp_path)
    jobs = jobs_of("balanced", 4, benchmark.QUICK)
    shapes = {job.shape.name for job in jobs}
    keep.begin(Campaign("quick", len(jobs), read_machine()))
    for name, samples in zip(benchmark.SINGLE, (20_000, 50_000), strict=True):
        ones = (recorded(shape.name, samples, 1e-4, 8e-5, 1.0) for shape in SHAPES if shape.name in shapes)
        keep.add(msgspec.structs.replace(single(*ones), arm=name))
    for arm, ends_s in ((SHIPPED, (5.0, 9.0, 13.0, 17.0)), (OURS, (6.0, 8.0, 9.0, 10.0))):
        ended = (recorded("dense-a", 1, end_s, 0.0, 0.0) for end_s in ends_s)
        keep.add(
            ArmRun(mix="balanced", arm=arm, round=0, cores=2, memory_bytes=2**34, foreign_share=0.02, jobs=tuple(ended))
        )
    return tmp_path


def test_a_comparison_of_records(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--quick", "--report-from", str(records), "--json"]) == 0
    *tables, last = capsys.readouterr().out.splitlines()
    assert any("order recorded: ours, sequential_shipped" in line for line in tables)
    assert any("up to 2%" in line for line in tables)
    figures = json.loads(last)["figures"]
    found = figures["fidelity"]
    assert set(figures["errors"]) == {SHIPPED, OURS} and figures["is_near"] is False
    assert [arm["arm"] for arm in found["arms"]] == [SHIPPED, OURS]
    assert [cost["sample_s"] for cost in found["costs"]] == pytest.approx([1e-4] * 4)


def test_records_without_single_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Keep(tmp_path).begin(Campaign("quick", 4, read_machine()))
    assert benchmark.main(["--quick", "--report-from", str(tmp_path)]) == 2
    assert "no runs of single jobs" in capsys.readouterr().err


def test_other_records_are_not_continued(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--keep", str(records)]) == 2
    assert "holds quick runs of 4 jobs" in capsys.readouterr().err
