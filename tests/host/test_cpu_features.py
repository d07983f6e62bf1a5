"""Which unit of a CPU multiplies bfloat16, and why one is refused."""

from __future__ import annotations

import pytest

from elastichost.host.cpu_features import CpuFeatures, bfloat16_unit, refuses_bfloat16


def cpu(*features: str, settings: tuple[str, ...] = ()) -> CpuFeatures:
    return CpuFeatures("GenuineIntel", "a-cpu", tuple(sorted(features)), settings)


@pytest.mark.parametrize(
    ("features", "unit"),
    [
        (("amx-bf16", "avx512bf16", "avx512f"), "AMX"),
        (("avx512bf16", "avx512f"), "AVX512-BF16"),
        (("bf16", "neon"), "BF16"),
    ],
)
def test_the_fastest_unit_is_named(features: tuple[str, ...], unit: str) -> None:
    assert bfloat16_unit(cpu(*features)) == unit
    assert refuses_bfloat16(cpu(*features)) == ""


def test_a_cpu_without_units_is_refused_by_name() -> None:
    assert bfloat16_unit(cpu("avx512f")) == ""
    assert refuses_bfloat16(cpu("avx512f")) == "the CPU (a-cpu) has neither AMX nor AVX512-BF16"


@pytest.mark.parametrize("setting", ["ONEDNN_MAX_CPU_ISA=AVX2", "DNNL_MAX_CPU_ISA=avx512_core"])
def test_an_environment_variable_that_switches_the_units_off_is_named(setting: str) -> None:
    assert refuses_bfloat16(cpu("amx-bf16", settings=(setting,))) == (
        f"{setting} switches the bfloat16 units of the CPU off"
    )


@pytest.mark.parametrize(
    "setting", ["ONEDNN_MAX_CPU_ISA=AVX512_CORE_AMX", "ONEDNN_MAX_CPU_ISA=avx512_core_bf16", "MKL_CBWR=AVX2"]
)
def test_other_settings_change_nothing(setting: str) -> None:
    assert bfloat16_unit(cpu("amx-bf16", settings=(setting,))) == "AMX"
