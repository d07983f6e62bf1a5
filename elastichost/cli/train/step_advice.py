"""What `plan` says of precision and batch size, from the times of training steps. Pure.

The times are of the dense part on one core (`worker.steps.step_times`), so they compare settings and are not the speed
of the job: a small net gains nothing where rows and reading take most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastichost.human_readable import count_words
from elastichost.specs import Precision
from elastichost.wire.facts import StepTime

__all__ = ["advice"]

NEARLY = 1.05  # a batch size is as good as the best one if a sample takes at most this many times as long
WORTH_IT = 1.1  # a precision is named as faster from here on


def advice(
    times: Sequence[StepTime], precision: Precision, batch_size: int, unit: str, refusal: str
) -> list[tuple[str, str]]:
    """Lines (name, text). precision, batch_size: of the job. unit: the unit of this CPU that multiplies bfloat16;
    refusal: why there is none. No lines without times."""
    of_job = [time for time in times if time.precision == precision]
    if not of_job:
        return []
    return [
        ("precision", _of_precision(times, precision, batch_size, unit, refusal)),
        ("batch size", _of_batch_size(of_job, batch_size)),
    ]


def _of_precision(times: Sequence[StepTime], precision: Precision, batch_size: int, unit: str, refusal: str) -> str:
    by_precision = {time.precision: time for time in times if time.samples == _nearest(times, batch_size)}
    plain = by_precision["float32"]
    told = f"the dense part takes {_ms(plain)} for {count_words(plain.samples)} samples on one core in float32"
    narrow = by_precision.get("bfloat16")
    if narrow is None:
        return f"{told}; no bfloat16 on this CPU: {refusal}"
    gain = plain.seconds / narrow.seconds
    told += f", {_ms(narrow)} in bfloat16 ({unit})"
    if gain < WORTH_IT:
        return f'{told}: train.precision = "bfloat16" gains nothing'
    if precision == "bfloat16":
        return f"{told}: bfloat16, as the job file says, is {gain:.1f} times as fast"
    return f'{told}: train.precision = "bfloat16" makes it {gain:.1f} times as fast'


def _of_batch_size(times: Sequence[StepTime], batch_size: int) -> str:
    costs = {time.samples: time.seconds / time.samples for time in times}
    best = min(costs.values())
    enough = min(samples for samples, cost in costs.items() if cost <= NEARLY * best)
    shown = ", ".join(f"{1e6 * cost:.3g} us with {count_words(samples)}" for samples, cost in sorted(costs.items()))
    told = f"the dense part takes {shown} samples a batch, for each sample; best from {count_words(enough)} on"
    cost = costs[_nearest(times, batch_size)]
    if cost <= NEARLY * best:
        return told
    return f"{told}, and train.batch_size = {batch_size} takes {cost / costs[enough]:.2f} times as long"


def _nearest(times: Sequence[StepTime], batch_size: int) -> int:
    """The measured batch size nearest to this one: a unit of the data may have fewer samples."""
    return min((time.samples for time in times), key=lambda samples: abs(samples - batch_size))


def _ms(time: StepTime) -> str:
    return f"{1e3 * time.seconds:.3g} ms"
