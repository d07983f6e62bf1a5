"""What a job asks of a node follows from the estimate of its memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastichost.cli.train.clusters.request import LEAST_ARENA_BYTES, LEAST_NOTICE_S, MIB, node_request
from elastichost.tuner.memory.peak_memory import MemoryEstimate, MemoryPart

GIB = 1 << 30


def estimate(arena: int, private: int) -> MemoryEstimate:
    parts = (MemoryPart("rows", arena, arena=True), MemoryPart("workers", private), MemoryPart("gpu", GIB, gpu=True))
    return MemoryEstimate("training", parts)


@given(arena=st.integers(0, 1 << 42), private=st.integers(1, 1 << 38), nodes=st.integers(1, 16))
def test_the_arena_and_the_processes_fit_into_the_budget_and_the_budget_into_the_request(
    arena: int, private: int, nodes: int
) -> None:
    request = node_request(estimate(arena, private), cores=4, nodes=nodes)
    assert request.arena_bytes >= max(arena, LEAST_ARENA_BYTES)
    assert request.arena_bytes + private <= request.budget_bytes < request.memory_bytes
    assert request.memory_bytes % MIB == request.arena_bytes % MIB == 0
    assert request.disk_bytes >= 3 * arena * nodes
    assert request.notice_s >= max(LEAST_NOTICE_S, arena / 100e6)


def test_an_amount_in_the_job_file_is_the_budget() -> None:
    request = node_request(estimate(GIB, GIB), cores=4, asked_bytes=10 * GIB)
    assert request.budget_bytes == 10 * GIB and request.memory_bytes >= 11 * GIB


def test_time_and_notice() -> None:
    request = node_request(estimate(0, GIB), cores=1, training_s=3600.0, notice_s=17)
    assert request.minutes == 90 + 10 and request.notice_s == 17
    assert node_request(estimate(0, GIB), cores=1).minutes == 0
