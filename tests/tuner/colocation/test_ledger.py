"""The ledger of peak memory: no memory is promised twice, observed peaks are charged, margins are learned."""

from __future__ import annotations

from functools import reduce

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.colocation.facts import CPU, JobDemand, PlacedJob, Placement
from elastichost.tuner.colocation.ledger import (
    HEADROOM,
    AdmissionRefusal,
    HostLedger,
    Margins,
    OvercommitError,
    admit,
    after_eviction,
    after_oom,
    charge_of,
    grown,
    learnt,
    margin,
    observe,
    refusal,
    release,
)
from tests.effort import examples
from tests.tuner.colocation.jobs import GB, GPU_HOST, HOST, gpu_mode, job, mode, placed

A_JOB = job("a", mode(memory=2.0))


def taught(*ratios: float, kind: str = "dense") -> Margins:
    """The margins after jobs with these ratios of observed to estimated peak."""
    margins = Margins()
    for ratio in ratios:
        margins = learnt(margins, kind, GB, round(ratio * GB))
    return margins


def test_the_margin_is_1_2_until_five_ratios_are_known() -> None:
    assert margin(Margins(), "dense") == 1.2
    assert margin(taught(2.0, 2.0, 2.0, 2.0), "dense") == 1.2
    assert margin(taught(2.0, 2.0, 2.0, 2.0, 2.0), "dense") == 2.0
    assert margin(taught(0.5, 0.5, 0.5, 0.5, 0.5), "dense") == 1.2, "the least margin"
    assert margin(taught(9.0, 9.0, 9.0, 9.0, 9.0), "dense") == 3.0, "the largest margin"


def test_margins_of_the_kind_precede_those_of_all_kinds() -> None:
    margins = taught(1.5, 1.5, 1.5, 1.5, 1.5)
    for _ in range(4):
        margins = learnt(margins, "input", GB, round(2.5 * GB))
    assert margin(margins, "dense") == 1.5
    assert 1.5 < margin(margins, "input") <= 2.5, "from all nine"
    assert margin(margins, "embedding") == margin(margins, "input")
    assert margin(margins, "dense", is_gpu=True) == 1.2, "GPUs have separate ratios"


def test_one_wrong_estimate_among_many_changes_the_margin_little() -> None:
    assert margin(taught(*([1.1] * 40), 50.0), "dense") == 1.2


def test_the_oldest_ratios_are_forgotten() -> None:
    margins = taught(*([2.0] * 10), *([1.3] * 400))
    assert len(margins.ratios) == 400
    assert margin(margins, "dense") == 1.3
    assert learnt(margins, "dense", 0, 5) == margins, "without an estimate there is no ratio"


def test_margins_are_computed_once_for_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatcher asks for them for each mode of each job in every turn."""
    margins, quantile, calls = taught(*([1.5] * 200), *([1.9] * 200)), np.quantile, list[int]()
    monkeypatch.setattr("numpy.quantile", lambda ratios, share: (calls.append(len(ratios)), quantile(ratios, share))[1])
    charges = {charge_of(margins, kind, gpu_mode(memory=1.0)) for kind in ("dense", "input") for _ in range(50)}
    assert charges == {(round(1.9 * GB), round(1.2 * 2 * GB))}
    assert calls == [400, 400], "those of the kind, and those of all kinds"
    more = learnt(margins, "dense", GB, GB)
    assert (more.ratios[-1].ratio, len(more.known)) == (1.0, 2)
    assert margins == Margins(margins.ratios), "what was computed does not count in comparisons"


def test_a_charge_includes_its_margin_and_a_refusal_has_a_reason() -> None:
    assert charge_of(Margins(), "dense", mode(memory=2.0)) == (round(2.4 * GB), 0)
    assert charge_of(Margins(), "dense", gpu_mode(memory=1.0, gpu_memory=2.0)) == (round(1.2 * GB), round(2.4 * GB))
    ledger = HostLedger(HOST)
    for at in range(4):
        ledger = admit(ledger, placed(msgspec.structs.replace(A_JOB, job=f"j{at}")))
    with pytest.raises(OvercommitError) as raised:
        admit(ledger, placed(A_JOB))
    assert str(raised.value.refusal.reason) == "a needs 2,288.8 MiB of memory; 381.5 MiB of 9,536.7 MiB are free"
    assert raised.value.refusal.resource == "memory"
    assert admit(ledger, placed(A_JOB), may_overcommit=True).over_bytes == 2 * GB
    with pytest.raises(ValueError, match="is already in the ledger"):
        admit(ledger, placed(msgspec.structs.replace(A_JOB, job="j0"), margin=0.0))


def test_each_gpu_has_its_own_room() -> None:
    first = admit(HostLedger(GPU_HOST), placed(job("a", gpu_mode(gpu_memory=8.0)), device=1))
    second = placed(job("b", gpu_mode(gpu_memory=2.0)), device=1)
    with pytest.raises(OvercommitError, match="2,288.8 MiB of memory of GPU 1; 381.5 MiB of 9,536.7 MiB"):
        admit(first, second)
    assert refusal(first, "b", 0, second.charged_bytes, second.charged_gpu_bytes) is None
    assert refusal(first, "b", CPU, second.charged_bytes) is None
    assert (first.free_gpu_bytes(0), first.free_gpu_bytes(1)) == (10 * GB, round(0.4 * GB))


def test_the_charge_follows_the_observed_peak() -> None:
    ledger = admit(HostLedger(HOST), placed(A_JOB))

    def charged(peak: float, is_past_peak: bool = False) -> float:
        nonlocal ledger
        ledger = observe(ledger, "a", round(peak * GB), is_past_peak=is_past_peak)
        return ledger.charged_bytes / GB

    assert charged(0.0) == 2.4
    assert charged(1.0) == 2.4, "before its peak"
    assert charged(3.0) == pytest.approx(3.3), "above the charge at admission"
    assert charged(1.0) == pytest.approx(3.3), "a peak does not fall"
    assert charged(1.0, is_past_peak=True) == pytest.approx(3.3)
    ledger = admit(HostLedger(HOST), placed(A_JOB))
    assert charged(1.0, is_past_peak=True) == pytest.approx(1.1), "the surplus is free for others"
    assert charged(1.2) == pytest.approx(1.32), "it stays past its peak"
    with pytest.raises(KeyError):
        observe(ledger, "b", 1)


def test_growth_beyond_the_memory_is_reported_and_not_refused() -> None:
    ledger = observe(admit(HostLedger(HOST), placed(A_JOB)), "a", 10 * GB)
    assert ledger.free_bytes == 0
    assert ledger.over_bytes == GB


def test_a_job_that_ended_is_added_to_the_margins() -> None:
    ledger = observe(admit(HostLedger(GPU_HOST), placed(job("a", gpu_mode()), device=0)), "a", 2 * GB, 3 * GB)
    cut, whole = release(ledger, "a"), release(ledger, "a", is_complete=True)
    assert not cut.charges and not whole.charges
    assert not cut.margins.ratios, "its peak may not have been reached"
    assert [(one.ratio, one.is_gpu) for one in whole.margins.ratios] == [(2.0, False), (1.5, True)]


peaks = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12 * GB), st.booleans()), max_size=20)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(0.1, 6.0), min_size=1, max_size=5), peaks)
def test_no_charge_is_below_an_observed_peak_and_no_memory_is_promised_twice(
    sizes: list[float], seen: list[tuple[int, int, bool]]
) -> None:
    ledger = HostLedger(HOST)
    for at, size in enumerate(sizes):
        one = placed(job(f"j{at}", mode(memory=size)))
        refused = refusal(ledger, one.demand.job, CPU, one.charged_bytes)
        if refused is None:
            ledger = admit(ledger, one)
        else:
            assert refused.needed_bytes > refused.free_bytes
    assert ledger.charged_bytes <= HOST.memory_bytes
    assert ledger.charged_bytes + ledger.free_bytes == HOST.memory_bytes
    most: dict[str, int] = {}
    for at, peak, past in seen:
        if ledger.charge(name := f"j{at}") is not None:
            most[name] = max(most.get(name, 0), peak)
            ledger = observe(ledger, name, peak, is_past_peak=past)
    for charge in ledger.charges:
        assert charge.charged_bytes >= most.get(charge.job, 0) * HEADROOM - 1
        assert charge.charged_bytes >= charge.admitted_bytes or charge.is_past_peak


def test_the_ledger_of_running_jobs() -> None:
    running = [placed(A_JOB), PlacedJob(job("g", gpu_mode()), Placement(0, 1), 7, 9)]
    ledger = reduce(admit, running, HostLedger(GPU_HOST))
    assert ledger.charged_bytes == round(2.4 * GB) + 7
    assert (ledger.charged_gpu_bytes(0), ledger.charged_gpu_bytes(1)) == (0, 9)


def test_after_running_out_of_memory_a_job_runs_alone_with_raised_estimates() -> None:
    demand = job("a", mode(memory=2.0), mode(memory=3.0))
    again = after_oom(demand, 0, round(2.1 * GB), HOST)
    assert isinstance(again, JobDemand)
    assert again.exclusive
    assert [one.memory_bytes for one in again.modes] == [3 * GB, round(4.5 * GB)]
    larger = after_oom(demand, 0, 4 * GB, HOST)
    assert isinstance(larger, JobDemand)
    assert [one.memory_bytes for one in larger.modes] == [round(4.8 * GB), round(7.2 * GB)]
    most = after_oom(demand, 1, 9 * GB, HOST)
    assert isinstance(most, JobDemand)
    assert most.modes[1].memory_bytes == 10 * GB, "a job alone may use all memory"
    refused = after_oom(again, 0, 9 * GB, HOST)
    assert isinstance(refused, AdmissionRefusal)
    assert refused.reason == (
        "a ran out of memory at 8,583.1 MiB although it ran alone; the host has 9,536.7 MiB in total"
    )


def test_after_running_out_of_gpu_memory_the_host_estimate_is_unchanged() -> None:
    again = after_oom(job("g", gpu_mode(memory=1.0, gpu_memory=4.0)), 0, GB, GPU_HOST, "gpu")
    assert isinstance(again, JobDemand)
    assert (again.modes[0].memory_bytes, again.modes[0].gpu_memory_bytes) == (GB, 6 * GB)


def test_a_job_that_grew_teaches_margins_of_its_larger_size() -> None:
    small, large = mode(memory=1.0), mode(memory=2.0, workers=2)
    more = grown(admit(HostLedger(HOST), placed(job("a", small, large))), "a", 3 * GB, 2 * GB)
    assert more.charged_bytes == 3 * GB
    right = release(observe(more, "a", 2 * GB), "a", is_complete=True)
    assert right.margins == learnt(Margins(), "dense", 2 * GB, 2 * GB)


def test_after_an_eviction_a_job_rests_and_its_estimate_follows_the_peak() -> None:
    demand = job("a", mode(memory=2.0), mode(memory=3.0))
    larger = after_eviction(demand, 0, 3 * GB, 0, HOST, 77.0)
    assert [one.memory_bytes for one in larger.modes] == [round(3.6 * GB), round(5.4 * GB)]
    assert (larger.not_before_s, larger.exclusive) == (77.0, False)
    assert after_eviction(demand, 0, GB, 0, HOST, 77.0).modes == demand.modes, "its peak was within its estimate"
    gpu = after_eviction(job("g", gpu_mode(gpu_memory=2.0)), 0, 0, 3 * GB, GPU_HOST, 0.0)
    assert gpu.modes[0].gpu_memory_bytes == round(3.6 * GB)
