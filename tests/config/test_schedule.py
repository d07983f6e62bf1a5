"""The learning-rate schedule: its shape, its limits, and that it depends on samples alone."""

from __future__ import annotations

from typing import Literal, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Parameter
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from elastichost.config.sections.schedule import ScheduleSettings

Name = Literal["constant", "linear", "cosine", "warmup_stable_decay"]
SCHEDULES = st.builds(
    ScheduleSettings,
    name=st.sampled_from(get_args(Name)),
    warmup_samples=st.integers(0, 1500),
    total_samples=st.sampled_from([0, 2000]),
    final_factor=st.floats(0.0, 0.9),
    decay_share=st.floats(0.0, 0.9),
)


@given(schedule=SCHEDULES, planned=st.integers(1600, 5000), samples=st.integers(1, 10_000))
def test_the_factor_rises_to_one_falls_to_the_last_one_and_stays_there(
    schedule: ScheduleSettings, planned: int, samples: int
) -> None:
    last = schedule.total_samples or planned
    factor = schedule.factor(samples, planned)
    assert 0.0 <= factor <= 1.0
    after = schedule.factor(samples + 1, planned)
    if samples < schedule.warmup_samples:
        assert factor == samples / schedule.warmup_samples
    else:
        assert after <= factor
    if samples >= last > schedule.warmup_samples:
        assert factor == pytest.approx(1.0 if schedule.name == "constant" else schedule.final_factor)


def test_cosine_is_that_of_torch() -> None:
    optimizer = SGD([Parameter(torch.zeros(1))], lr=1.0)
    torchs = CosineAnnealingLR(optimizer, T_max=10, eta_min=0.1)
    schedule = ScheduleSettings(name="cosine", final_factor=0.1)
    for samples in range(11):
        assert schedule.factor(samples, 10) == pytest.approx(torchs.get_last_lr()[0])
        optimizer.step()
        torchs.step()


def test_warmup_stable_decay_is_constant_until_the_last_samples() -> None:
    schedule = ScheduleSettings(name="warmup_stable_decay", warmup_samples=10, decay_share=0.2)
    assert [schedule.factor(samples, 100) for samples in (5, 10, 80, 90, 100)] == [0.5, 1.0, 1.0, 0.5, 0.0]
