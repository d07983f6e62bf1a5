"""A run in sync mode is refused on another CPU."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.config.job import JobSpec
from elastichost.errors import CpuDiffersError
from elastichost.host.cpu_features import CpuFeatures, cpu_differences, present_cpu
from elastichost.runs.cpu_check import require_same_cpu

BEFORE = CpuFeatures("GenuineIntel", "skylake-avx512", ("avx2", "avx512f"), ())
NOW = CpuFeatures("AuthenticAMD", "znver3", ("avx2", "sha"), ("MKL_CBWR=AVX2",))


def job(mode: str, *, any_cpu: bool = False) -> JobSpec:
    train = {"mode": mode, "any_cpu": any_cpu}
    model = {"build": "elastichost.models:dlrm"}
    facts = {"job": {"name": "j"}, "model": model, "data": {"format": "synthetic"}, "train": train}
    return JobSpec.model_validate(facts)


def test_the_error_names_the_differences_and_the_setting_that_allows_them() -> None:
    with pytest.raises(CpuDiffersError) as caught:
        require_same_cpu(job("sync"), BEFORE, NOW, "runs/a")
    for word in ("runs/a", "AuthenticAMD instead of GenuineIntel", "znver3", "without the features avx512f", "sha"):
        assert word in caught.value.message
    assert "MKL_CBWR=AVX2" in caught.value.message and "train.any_cpu = true" in caught.value.hint


def test_any_cpu_async_mode_and_the_same_cpu_are_allowed() -> None:
    require_same_cpu(job("sync", any_cpu=True), BEFORE, NOW, "runs/a")
    require_same_cpu(job("async"), BEFORE, NOW, "runs/a")
    require_same_cpu(job("sync"), BEFORE, BEFORE, "runs/a")
    require_same_cpu(job("sync"), None, NOW, "a run without cpu.json")


def test_this_cpu_equals_itself_and_differs_with_a_capability_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    present_cpu.cache_clear()
    here = present_cpu()
    assert here.name and here.features and cpu_differences(here, here) == ()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    present_cpu.cache_clear()
    try:
        assert cpu_differences(here, present_cpu()) == ("with the settings ATEN_CPU_CAPABILITY=default",)
    finally:
        present_cpu.cache_clear()
    assert msgspec.json.decode(msgspec.json.encode(here), type=CpuFeatures) == here
