"""The lines of `plan` on precision and batch size."""

from __future__ import annotations

from elastichost.cli.train.step_advice import advice
from elastichost.specs import Precision
from elastichost.wire.facts import StepTime

LARGE = [
    StepTime(precision, samples, samples * cost_us * 1e-6 + 0.01)
    for precision, cost_us in (("float32", 100.0), ("bfloat16", 20.0))
    for samples in (512, 1024, 2048, 4096)
]


def lines(
    times: list[StepTime], precision: Precision = "float32", batch_size: int = 2048, refusal: str = ""
) -> dict[str, str]:
    return dict(advice(times, precision, batch_size, "" if refusal else "AMX", refusal))


def test_a_large_net_is_told_what_bfloat16_gains() -> None:
    assert lines(LARGE)["precision"] == (
        "the dense part takes 215 ms for 2048 samples on one core in float32, 51 ms in bfloat16 (AMX): "
        'train.precision = "bfloat16" makes it 4.2 times as fast'
    )
    assert lines(LARGE, "bfloat16")["precision"].endswith("bfloat16, as the job file says, is 4.2 times as fast")


def test_a_small_net_is_told_that_bfloat16_gains_nothing() -> None:
    small = [StepTime("float32", 512, 0.010), StepTime("bfloat16", 512, 0.011)]
    assert lines(small, batch_size=512)["precision"].endswith('train.precision = "bfloat16" gains nothing')


def test_a_cpu_without_units_is_named_with_the_reason() -> None:
    times = [time for time in LARGE if time.precision == "float32"]
    told = lines(times, refusal="it has neither AMX nor AVX512-BF16")["precision"]
    assert told.endswith("no bfloat16 on this CPU: it has neither AMX nor AVX512-BF16")


def test_the_smallest_batch_that_uses_a_core_well_is_named() -> None:
    told = lines(LARGE, batch_size=512)["batch size"]
    assert "120 us with 512, 110 us with 1024, 105 us with 2048, 102 us with 4096" in told
    assert "best from 2048 on" in told and told.endswith("train.batch_size = 512 takes 1.14 times as long")
    assert "times as long" not in lines(LARGE, batch_size=4096)["batch size"]


def test_a_batch_size_that_no_unit_has_samples_for_is_compared_by_the_nearest() -> None:
    assert "for 4096 samples" in lines(LARGE, batch_size=100_000)["precision"]


def test_without_times_nothing_is_said() -> None:
    assert advice([], "float32", 512, "AMX", "") == []
