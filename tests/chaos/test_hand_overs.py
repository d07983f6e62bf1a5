"""Hashes of buckets that PS write at a hand-over, and their comparison afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastichost.chaos.hand_overs import check_hand_overs, read_audit
from elastichost.ps.audit import AUDIT_VARIABLE, Audit, AuditLine

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def read(table: int, bucket: int, copy: Callable[[Any], Any]) -> list[tuple[str, int, Any]]:
    """Stands for the function with which a PS reads the blocks of a bucket."""
    return [("rows", 0, copy(ROWS + bucket)), ("state", 0, copy(ROWS[:, 0]))]


def line(event: Any, epoch: int, rows: str = "a", bucket: int = 0, supervisor: int = 1) -> AuditLine:
    """An audit line of table 0."""
    return AuditLine(event, supervisor, epoch, 0, bucket, {"rows 0": rows})


def test_the_audit_that_a_ps_writes_can_be_read_and_its_hashes_agree(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    audit = Audit(read, 7, {AUDIT_VARIABLE: "1"})
    audit.note("released", 3, [(0, 1), (0, 2)])
    audit.note("adopted", 4, [(0, 1), (0, 2)])
    (tmp_path / "logs").mkdir()
    text = f"some other line\n{capfd.readouterr().out}audit {{cut sho"
    (tmp_path / "logs" / "server-0.1.log").write_text(text)
    lines = list(read_audit(tmp_path))
    assert [(one.event, one.epoch, one.bucket) for one in lines] == [
        ("released", 3, 1),
        ("released", 3, 2),
        ("adopted", 4, 1),
        ("adopted", 4, 2),
    ]
    assert lines[0].blocks != lines[1].blocks
    assert check_hand_overs(lines, "served").holds


def test_without_the_environment_variable_no_audit_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    Audit(read, 7, {}).note("released", 3, [(0, 1)])
    assert capfd.readouterr().out == ""


def test_a_bucket_that_changed_in_between_is_found() -> None:
    verdict = check_hand_overs([line("released", 3, "a"), line("adopted", 4, "b")], "served")
    assert verdict.violations == (
        "table 0, bucket 0: rows 0 changed between its release in epoch 3 and its adoption in epoch 4",
    )


def test_only_a_released_bucket_is_compared_with_its_next_adoption() -> None:
    first, killed = [line("adopted", 1, "a")], [line("adopted", 5, "c")]  # adopted again: its owner was killed
    assert check_hand_overs([*first, *killed], "served").holds is None
    others = [line("released", 3, "a", supervisor=1), line("adopted", 4, "b", supervisor=2)]
    assert check_hand_overs(others, "served").holds is None
    assert check_hand_overs([line("released", 3, "a"), line("adopted", 3, "a"), *killed], "served").holds


def test_with_direct_access_there_is_no_verdict() -> None:
    assert check_hand_overs([line("released", 3, "a"), line("adopted", 4, "b")], "direct").holds is None
