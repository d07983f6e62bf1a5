"""Where sync mode goes on on another CPU."""

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


def test_differences_are_named_and_what_to_do() -> None:
    with pytest.raises(CpuDiffersError) as caught:
        require_same_cpu(job("sync"), BEFORE, NOW, "runs/a")
    for word in ("runs/a", "AuthenticAMD instead of GenuineIntel", "znver3", "without the features avx512f", "sha"):
        assert word in caught.value.message
    assert "MKL_CBWR=AVX2" in caught.value.message and "train.any_cpu = true" in caught.value.hint


def test_who_goes_on_knowingly_async_mode_and_the_same_cpu_are_let_through() -> None:
    require_same_cpu(job("sync", any_cpu=True), BEFORE, NOW, "runs/a")
    require_same_cpu(job("async"), BEFORE, NOW, "runs/a")
    require_same_cpu(job("sync"), BEFORE, BEFORE, "runs/a")
    require_same_cpu(job("sync"), None, NOW, "a run of which nothing is known")


def test_this_machine_is_like_itself_and_a_limit_makes_it_another(monkeypatch: pytest.MonkeyPatch) -> None:
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
