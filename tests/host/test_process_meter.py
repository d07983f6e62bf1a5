"""Memory of processes: their own, and the part that they share with processes forked from the same one."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.host.process_meter import ProcessMeter, context_switches, own_bytes, processes_alike

MB = 10**6


@given(own_mb=st.integers(0, 500), shared_mb=st.integers(0, 400), forked=st.integers(2, 100))
def test_own_memory_is_found_from_what_is_measured(own_mb: int, shared_mb: int, forked: int) -> None:
    """All processes were forked from one process. They share its pages, and none of these was written to since."""
    pss_anon, anonymous = own_mb * MB + shared_mb * MB // forked, (own_mb + shared_mb) * MB
    assert abs(own_bytes(pss_anon, anonymous, forked) - own_mb * MB) <= 2


def test_all_memory_of_a_single_process_is_its_own() -> None:
    assert own_bytes(7, 9, 1) == 7
    assert own_bytes(7, 5, 4) == 7, "values that were not measured at the same time"
    assert own_bytes(1, 100, 2) == 0


def test_context_switches_are_counted_where_further_lines_are_behind_them() -> None:
    """As on x86 since Linux 6.6."""
    counts = b"Name:\tpython\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n"
    assert context_switches(counts) == 157
    assert context_switches(counts + b"x86_Thread_features:\t\nx86_Thread_features_locked:\t\n") == 157
    assert context_switches(b"Name:\tvoluntary_ctxt_switches: 3\n") == 0


def test_processes_that_were_forked_from_one_are_counted() -> None:
    before = processes_alike()
    assert before >= 1
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        assert processes_alike() == before + 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_memory_allocated_since_the_measurement_is_counted() -> None:
    """A child allocates 60 MB, then ends."""
    asked, told = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(asked[0], 1)
        taken = b"1" * (60 * MB)
        os.write(told[1], taken[:1])
        signal.pause()
    meter = ProcessMeter()
    try:
        first = meter.measure([child], 1.0, thoroughly=True)[child]
        measured = first.private_bytes
        assert measured > 0
        assert meter.private_bytes() == pytest.approx(measured, abs=MB)
        os.write(asked[1], b"g")
        os.read(told[0], 1)
        assert meter.private_bytes() - measured == pytest.approx(60 * MB, abs=2 * MB)
        second = meter.measure([child], 1.1)[child]
        assert second.pss_bytes == first.pss_bytes, "its page tables are not read again so soon"
        assert second.private_bytes - measured == pytest.approx(60 * MB, abs=2 * MB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert meter.private_bytes() == 0, "the child has ended"
