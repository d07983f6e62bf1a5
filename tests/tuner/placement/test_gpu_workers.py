"""GPUs of workers: one worker each, whatever plans follow each other, and no worker ever changes its kind."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elastichost.plan import Plan
from elastichost.resources import GpuDevice, Parallelism
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.gpu_workers import (
    gpus_of_workers,
    has_both_kinds,
    kept_first,
    most_workers,
    plan_without_gpus,
)
from elastichost.tuner.placement.resize import resized_plan

FRACTION = 0.9


def devices(count: int) -> tuple[GpuDevice, ...]:
    return tuple(GpuDevice(index, "a", 80 << 30) for index in range(count))


def gpus_of(plan: Plan) -> list[int | None]:
    return [spec.gpu for spec in plan.workers]


class Plans(RuleBasedStateMachine):
    """Plans of one run: it is resized, and GPUs are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus = (0, 1, 2)
        self.plan = initial_plan(cores=(0, 1), workers=4, gpus=devices(3), gpu_memory_fraction=FRACTION)
        self.before = self.plan

    def follow(self, plan: Plan) -> None:
        self.before, self.plan = self.plan, plan

    @rule(workers=st.integers(1, 8), servers=st.integers(1, 3), threads=st.integers(1, 2))
    def resize(self, workers: int, servers: int, threads: int) -> None:
        sizes = {"workers": workers, "servers": servers, "worker_cores": threads}
        self.follow(resized_plan(self.plan, "asked", gpus=self.gpus, **sizes))  # type: ignore[arg-type]
        assert len(self.plan.workers) == workers
        with_gpus = sum(spec.gpu is not None for spec in self.before.workers)
        assert sum(gpu is not None for gpu in gpus_of(self.plan)) >= min(workers, with_gpus), "CPU workers leave first"

    @precondition(lambda self: self.gpus)
    @rule(which=st.integers(0, 2))
    def lose(self, which: int) -> None:
        lost = self.gpus[which % len(self.gpus)]
        self.gpus = tuple(gpu for gpu in self.gpus if gpu != lost)
        self.follow(plan_without_gpus(self.plan, {lost}, self.gpus, "it is lost"))
        assert lost not in gpus_of(self.plan)
        assert self.plan.servers == self.before.servers

    @invariant()
    def a_gpu_has_at_most_one_worker(self) -> None:
        assert self.plan.workers, "a run always has a worker"
        used = Counter(gpu for gpu in gpus_of(self.plan) if gpu is not None)
        assert all(many == 1 for many in used.values()) and set(used) <= set(self.gpus)
        assert len({spec.index for spec in self.plan.workers}) == len(self.plan.workers)

    @invariant()
    def no_worker_changes_its_kind(self) -> None:
        known = {spec.index: spec.gpu for spec in self.before.workers}
        assert all(known.get(spec.index, spec.gpu) == spec.gpu for spec in self.plan.workers)

    @invariant()
    def only_workers_with_a_gpu_have_a_share_of_one(self) -> None:
        for spec in self.plan.workers:
            assert spec.gpu_memory_fraction == (1.0 if spec.gpu is None else FRACTION)


TestPlans = Plans.TestCase


@given(workers=st.integers(1, 9), gpus=st.integers(0, 4), capacity=st.lists(st.integers(1, 8), max_size=3))
def test_the_first_workers_have_the_gpus_and_are_on_host_0(workers: int, gpus: int, capacity: list[int]) -> None:
    plan = initial_plan(cores=(0, 1), workers=workers, gpus=devices(gpus), capacity=tuple(capacity))
    assert gpus_of(plan) == [index if index < gpus else None for index in range(workers)]
    assert all(spec.host == 0 for spec in plan.workers if spec.gpu is not None)
    assert has_both_kinds(plan.workers) == (0 < gpus < workers)


def test_a_lost_gpu_gives_its_place_to_one_without_a_worker_and_else_to_none() -> None:
    plan = initial_plan(cores=(0, 1), workers=1, gpus=devices(2), gpu_memory_fraction=FRACTION)
    moved = plan_without_gpus(plan, {0}, (1,), "lost")
    assert [(spec.index, spec.gpu, spec.gpu_memory_fraction) for spec in moved.workers] == [(1, 1, FRACTION)]
    both = initial_plan(cores=(0, 1), workers=3, gpus=devices(2))
    assert [(spec.index, spec.gpu) for spec in plan_without_gpus(both, {0}, (1,), "lost").workers] == [
        (1, 1),
        (2, None),
    ]
    alone = plan_without_gpus(moved, {1}, (), "lost")
    assert [(spec.index, spec.gpu, spec.gpu_memory_fraction) for spec in alone.workers] == [(0, None, 1.0)]


def test_the_reason_of_a_first_plan_names_both_kinds() -> None:
    plan = initial_plan(cores=(0, 1, 2), workers=3, gpus=devices(2))
    assert plan.reason.startswith("cold start: 2 workers with a GPU each, 1 on the CPU;")
    assert initial_plan(cores=(0,), gpus=devices(1)).reason.startswith("cold start: 1 worker with a GPU each;")


def test_existing_workers_keep_gpus_and_new_ones_get_those_that_are_free() -> None:
    assert gpus_of_workers({0: None, 1: 1}, (0, 1, 2, 3, 4), (0, 1, 2)) == {1: 1, 2: 0, 3: 2}
    assert gpus_of_workers({0: 5}, (0, 1), (0,)) == {1: 0}, "a lost GPU is nobody's"
    plan = initial_plan(cores=(0,), workers=3, gpus=devices(1))
    assert kept_first(reversed(plan.workers)) == [0, 1, 2]
    assert kept_first(plan_without_gpus(plan, {0}, (), "lost").workers) == [1, 2]


@pytest.mark.parametrize(("setting", "expected"), [("auto", 8), (3, 3), ((1, 5), 5), ([2, 20], 20)])
def test_the_number_of_workers_is_left_open_as_one_for_each_gpu(setting: Parallelism, expected: int) -> None:
    assert most_workers(setting, 8) == expected
