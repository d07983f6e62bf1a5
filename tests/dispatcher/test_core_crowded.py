"""Jobs that compete on one host: memory runs short, jobs slow each other, cores are divided."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.dispatcher.core.demands import MemoryOfSize
from elastichost.dispatcher.core.effects import Effect, NoteEvent, ResizeJob, StopJob
from elastichost.dispatcher.core.oom_containment import CALM_S
from elastichost.runs.events import JobFailed
from elastichost.tuner.colocation.settings import ColocationSettings
from tests.dispatcher.jobs import INVENTORY, MB, Hosted, examined, hosted, look, request, result, running

# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_job_above_its_estimate_is_contained_and_runs_once_more_alone() -> None:
    host = running("liar", "honest", memory_mb=3000)
    host.see("liar", memory_mb=2700)
    host.tick(2.0)
    assert ResizeJob("liar", memory_bytes=1050 * MB) in host.effects
    host.tick(4.0)
    assert host.stops == [], "the run still has time to free memory"
    host.tick(5.1)
    assert host.stops == ["liar"]
    assert host.job("liar").state == "stopping"
    host.end("liar", 75)
    assert (host.job("liar").state, host.job("liar").out_of_memory) == ("waiting", 1)
    assert host.job("honest").state == "running"
    host.end("honest", 0)
    assert host.tick(12.0) == ["liar"]


def test_a_tightened_job_gets_its_charge_back_when_there_is_room() -> None:
    host = running("liar", "honest", memory_mb=4000)
    host.see("liar", memory_mb=2400, grown_mb=1300)
    host.tick(2.0)
    assert ResizeJob("liar", memory_bytes=1050 * MB) in host.effects
    host.see("liar", memory_mb=900)
    told: list[tuple[float, Effect]] = []
    for now_s in range(3, 90):
        if now_s == 40:  # until then the charges of both jobs exceed the memory
            host.end("honest", 0, 40.0)
        host.tick(float(now_s))
        told += [(now_s, effect) for effect in host.effects if isinstance(effect, ResizeJob)]
    assert told == [(40 + CALM_S, ResizeJob("liar", memory_bytes=4000 * MB))]
    assert host.stops == []


def test_when_memory_runs_short_the_job_above_its_admitted_charge_is_paused() -> None:
    """The charge follows the memory in use, so the excess is measured from the charge at admission."""
    host = running("liar", "newest", memory_mb=3000)
    host.see("liar", memory_mb=2000)
    host.see("newest", memory_mb=980)
    host.tick(4.0)
    assert [host.job(job).state for job in ("liar", "newest")] == ["paused", "running"]


def test_memory_taken_since_the_last_measurement_counts_when_memory_is_short() -> None:
    host = running("liar", "honest", memory_mb=3000)
    host.see("liar", memory_mb=100, grown_mb=9000)
    host.tick(2.0)
    assert host.kills == ["liar"]
    assert host.job("liar").peak_bytes == 9100 * MB, "from now on the estimate follows this peak"


def test_a_job_that_does_not_stop_when_asked_is_killed() -> None:
    host = running("liar", "honest", memory_mb=3000)
    host.see("liar", memory_mb=2700)
    for now_s in (2.0, 5.1, 8.2):
        host.tick(now_s)
    assert (host.stops, host.kills) == (["liar"], ["liar"])
    host.end("liar", -9)
    assert (host.job("liar").state, host.job("liar").out_of_memory) == ("waiting", 1)


def test_a_cancelled_job_that_is_killed_for_memory_is_cancelled() -> None:
    host = running("liar", "honest", memory_mb=3000)
    host.cancel("liar")
    host.see("liar", memory_mb=9000)
    host.tick(6.0)
    assert host.kills == ["liar"]
    host.end("liar", -9)
    assert host.job("liar").state == "cancelled"


def test_jobs_whose_arenas_an_earlier_dispatcher_left_start_first() -> None:
    """Their arenas occupy memory for which no job is charged before they start."""
    host = hosted(4000)
    host.submit("new")
    host.did(host.core.submit(request("held"), 0.0, has_run=True, holds_arena=True))
    assert host.tick(0.0) == [], "the other one is still being examined"
    assert host.job("new").why == "waits until held has started, whose rows an earlier dispatcher left in memory"
    host.did(host.core.examined(examined("held", 3000), 1.0))
    assert host.tick(1.0) == ["held"]
    assert host.spawns[-1].resume
    host.see("held", 2.0)
    assert host.tick(3.0) == [] and host.job("new").why.startswith("needs")
    host.end("held", 0, 4.0)
    assert host.tick(5.0) == ["new"]


def test_a_held_arena_of_a_job_that_cannot_run_keeps_no_other_job_waiting() -> None:
    host = hosted(4000)
    host.submit("new")
    host.did(host.core.submit(request("held"), 0.0, has_run=True, holds_arena=True))
    host.did(host.core.examined(examined("held", 9000), 0.0))
    host.tick(3.0)
    assert host.job("held").state == "failed" and host.noted(JobFailed)
    assert host.tick(4.0) == ["new"]


def test_a_start_waits_for_room_in_the_file_system_of_arenas() -> None:
    """Otherwise the job would end with ArenaFullError at once, although it need only wait."""
    host = hosted(10_000)
    host.core.arenas_may_use(2500 * MB)
    for job in "ab":
        host.did(host.core.submit(request(job), 0.0))
        size = MemoryOfSize(1, 2000 * MB, arena_bytes=1500 * MB)
        host.did(host.core.examined(msgspec.structs.replace(examined(job), memory=(size,)), 0.0))
    assert host.tick(0.0) == ["a"]
    host.see("a", 1.0)
    host.tick(3.0)
    assert host.job("b").state == "waiting"
    assert host.job("b").why.startswith("needs 1,430.5 MiB in the file system of arenas, 953.7 MiB of 2,384.2 MiB are")
    host.core.arenas_may_use(3000 * MB)
    assert host.tick(5.0) == ["b"]


# --- jobs beside each other -------------------------------------------------------------------------------------------


def crowded(policy: ColocationSettings) -> Hosted:
    """Returns a host whose memory is nearly used up by two jobs that train."""
    host = hosted(2450, policy)
    host.submit("a")
    host.submit("b")
    host.tick(0.0)
    for job in "ab":
        host.see(job, 1.0, memory_mb=1210)
    return host


def test_nearly_full_memory_pauses_one_job_until_there_is_room() -> None:
    host = crowded(ColocationSettings(policy="fifo", most_jobs=9))
    host.tick(4.0)
    paused = [job for job in "ab" if host.job(job).state == "paused"]
    assert len(paused) == 1
    other = "b" if paused == ["a"] else "a"
    host.submit("c", 10)
    assert host.tick(4.2) == [], "the paused job continues before another starts"
    host.end(other, 0)
    host.tick(8.0)
    assert host.job(paused[0]).state == "running"


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_a_paused_job_can_be_ended(how: str) -> None:
    host = crowded(ColocationSettings(policy="fifo", most_jobs=9))
    host.tick(4.0)
    paused = next(job for job in "ab" if host.job(job).state == "paused")
    if how == "cancel":
        host.cancel(paused)
    else:
        host.did(host.core.stop(5.0))
    assert StopJob(paused) in host.effects
    host.end(paused, 75)
    assert host.job(paused).state == ("cancelled" if how == "cancel" else "stopped")


def test_an_evicted_job_waits_and_continues_when_there_is_room() -> None:
    """While memory stays short, a job is first paused and then evicted, which frees its memory."""
    host = crowded(ColocationSettings(policy="fifo", most_jobs=9))
    host.tick(4.0)
    paused = next(job for job in "ab" if host.job(job).state == "paused")
    for now_s in (10.0, 16.0):
        host.tick(now_s)
    assert host.stops == [paused]
    host.end(paused, 75)
    assert (host.job(paused).state, host.job(paused).out_of_memory) == ("waiting", 0)
    assert host.job(paused).why == "evicted; it continues when there is room"
    other = "b" if paused == "a" else "a"
    host.end(other, 0)
    peak_bytes = host.job(paused).peak_bytes
    assert host.tick(1000.0) == [paused]
    assert host.spawns[-1].resume
    host.see(paused, 1001.0, memory_mb=1)
    entry = host.core._jobs[paused]
    assert (entry.peak_bytes, host.job(paused).peak_bytes) == (MB, peak_bytes), "the status has the largest of all"
    assert host.job(paused).charged_bytes == entry.admitted_bytes, "the earlier incarnation may have had more workers"


def test_an_evicted_job_that_had_nothing_to_save_continues_too() -> None:
    """A supervisor that is asked to stop before it trained ends with the signal's exit code."""
    host = crowded(ColocationSettings(policy="fifo", most_jobs=9))
    host.tick(4.0)
    paused = next(job for job in "ab" if host.job(job).state == "paused")
    for now_s in (10.0, 16.0):
        host.tick(now_s)
    host.end(paused, 143, cause="exit code 143")
    assert host.job(paused).state == "waiting"


def test_a_job_that_was_started_too_often_fails() -> None:
    host = hosted(2450, ColocationSettings(policy="fifo", most_jobs=9))
    host.submit("a")
    host.tick(0.0)
    entry = host.core._jobs["a"]
    entry.starts = 5
    entry.stop_cause = "evict"
    host.end("a", 75)
    assert host.job("a").state == "failed"
    assert host.job("a").why.startswith("started 5 times and never completed")


def test_jobs_that_share_cores_get_separate_cores_once_they_are_measured() -> None:
    host = hosted(10_000, ColocationSettings(policy="fifo", most_jobs=9))
    for job in "ab":
        host.submit(job, least=1, most=2)
    host.tick(0.0)
    for second in range(1, 8):
        for job in "ab":
            host.see(job, float(second), at=look())
        host.tick(float(second))
    cores = [host.job(job).cores for job in "ab"]
    assert not set(cores[0]) & set(cores[1])
    assert {*cores[0], *cores[1]} <= set(INVENTORY.cores)


def test_a_peak_is_compared_with_the_estimate_for_the_workers_that_the_job_may_have_had() -> None:
    host = hosted()
    host.submit("a", 1000, least=1, most=3, worker_mb=500)
    host.tick(0.0)

    def after(workers: int, memory_mb: int, now_s: float) -> tuple[float, float]:
        host.see("a", now_s, workers=workers, memory_mb=memory_mb)
        return host.job("a").estimated_bytes / MB, host.job("a").peak_bytes / MB

    assert after(1, 700, 1.0) == (2000, 700), "the job was told to have three workers; its status may be older"
    assert after(1, 800, 10.0) == (1000, 800), "the job still has one worker"
    assert after(2, 1100, 11.0) == (1500, 1100)
    assert after(3, 1050, 12.0) == (1500, 1100), "the added worker has taken no memory yet"
    assert after(2, 1150, 13.0) == (2000, 1150), "the third worker may still run"
    assert after(2, 1200, 20.0) == (1500, 1200)
    assert after(1, 900, 21.0) == (1500, 1200)


def test_a_peak_in_the_result_belongs_to_the_worker_count_in_the_result() -> None:
    host = hosted()
    host.submit("a", 1000, least=1, most=3, worker_mb=500)
    host.tick(0.0)
    host.see("a", workers=1, memory_mb=800)
    host.end("a", 0, result=result(peak_bytes=1600 * MB, peak_workers=2))
    assert (host.job("a").estimated_bytes, host.job("a").peak_bytes) == (1500 * MB, 1600 * MB)


@pytest.mark.parametrize("policy", ["exclusive"])
def test_a_job_of_the_exclusive_policy_is_not_changed(policy: str) -> None:
    host = hosted(10_000, ColocationSettings(policy="exclusive"))
    host.submit("a", least=1, most=2)
    host.submit("b")
    assert host.tick(0.0) == ["a"]
    for second in range(1, 30):
        host.see("a", float(second), at=look())
        host.tick(float(second))
        assert not [e for e in host.effects if not isinstance(e, NoteEvent)]
    assert host.job("b").why == "a runs, and jobs run one at a time"
    host.end("a", 0)
    assert host.tick(31.0) == ["b"]
