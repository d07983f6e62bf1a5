"""The failure report that a child sends to the supervisor."""

from __future__ import annotations

import pytest
import torch

from elastichost.errors import DataError, NonFiniteError, SampleRange
from elastichost.wire.entry import failure_report


def test_an_error_of_elastichost_is_reported_with_its_hint_and_samples() -> None:
    report = failure_report(DataError("a.csv: row 3", hint="mend it"))
    assert (report.error_type, report.message, report.hint) == ("DataError", "a.csv: row 3", "mend it")
    samples = SampleRange(0, 1, 2, 3)
    assert failure_report(NonFiniteError("nan", samples=samples)).samples == samples


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("HIP out of memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_a_full_gpu_is_reported_as_one_type_by_any_library(error: Exception) -> None:
    report = failure_report(error)
    assert (report.error_type, report.message) == ("GpuMemoryError", str(error))


def test_an_error_that_only_mentions_gpus_keeps_its_type() -> None:
    assert failure_report(ValueError("CUDA out of memory")).error_type == "ValueError"
    assert failure_report(RuntimeError("shapes differ")).error_type == "RuntimeError"
