"""A result or another JSON file that is absent, damaged or incomplete reads as nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.dispatcher.facts import JobFailure
from elastichost.runs.result import read_json, read_result
from tests.dispatcher.jobs import result


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_result(tmp_path) is None
    written = result(peak_bytes=1000, peak_workers=2)
    (tmp_path / "result.json").write_bytes(written.to_bytes())
    assert read_result(tmp_path) == written


@pytest.mark.parametrize("content", [b"", b'{"kind": "ModelE', b'{"kind": 7, "message": ""}', b"\xff"])
def test_a_damaged_file_reads_as_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "failure.json"
    path.write_bytes(content)
    assert read_json(path, JobFailure) is None
    assert read_json(tmp_path, JobFailure) is None
