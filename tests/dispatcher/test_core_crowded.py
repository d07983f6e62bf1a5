"""Jobs that are in each other's way: memory that runs short, speeds that suffer, cores that are shared out."""

from __future__ import annotations

import pytest

from elastichost.dispatcher.core.effects import Effect, NoteEvent, ResizeJob, StopJob
from elastichost.dispatcher.core.oom_containment import CALM_S
from elastichost.tuner.colocation.settings import ColocationSettings
from tests.dispatcher.jobs import INVENTORY, MB, Hosted, hosted, look, result, running

# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_job_that_lies_is_contained_and_runs_once_more_alone() -> None:
    host = running("liar", "honest", memory_mb=3000)
    host.see("liar", memory_mb=2700)
    host.tick(2.0)
    assert ResizeJob("liar", memory_bytes=1050 * MB) in host.effects
    host.tick(4.0)
    assert host.stops == [], "it may need a moment"
    host.tick(5.1)
    assert host.stops == ["liar"]
    assert host.job("liar").state == "stopping"
    host.end("liar", 75)
    assert (host.job("liar").state, host.job("liar").out_of_memory) == ("waiting", 1)
    assert host.job("honest").state == "running"
    host.end("honest", 0)
    assert host.tick(12.0) == ["liar"]


def test_who_was_tightened_has_its_charge_again_when_there_is_room() -> None:
    host = running("liar", "honest", memory_mb=4000)
    host.see("liar", memory_mb=2400, grown_mb=1300)
    host.tick(2.0)
    assert ResizeJob("liar", memory_bytes=1050 * MB) in host.effects
    host.see("liar", memory_mb=900)
    told: list[tuple[float, Effect]] = []
    for now_s in range(3, 90):
        if now_s == 40:  # until then its charge is not there
            host.end("honest", 0, 40.0)
        host.tick(float(now_s))
        told += [(now_s, effect) for effect in host.effects if isinstance(effect, ResizeJob)]
    assert told == [(40 + CALM_S, ResizeJob("liar", memory_bytes=4000 * MB))]
    assert host.stops == []


def test_memory_runs_short_and_it_is_the_liar_that_stands_still() -> None:
    """What is charged follows what it takes: it is judged by what it was admitted with."""
    host = running("liar", "newest", memory_mb=3000)
    host.see("liar", memory_mb=2000)
    host.see("newest", memory_mb=980)
    host.tick(4.0)
    assert [host.job(job).state for job in ("liar", "newest")] == ["paused", "running"]


def test_what_was_taken_and_not_measured_yet_counts_when_there_is_too_little() -> None:
    host = running("liar", "honest", memory_mb=3000)
    host.see("liar", memory_mb=100, grown_mb=9000)
    host.tick(2.0)
    assert host.kills == ["liar"]
    assert host.job("liar").peak_bytes == 9100 * MB, "it is estimated by that from now on"


def test_a_job_that_does_not_even_stop_is_killed() -> None:
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


# --- beside each other ------------------------------------------------------------------------------------------------


def crowded(policy: ColocationSettings) -> Hosted:
    """Memory all but used up, by two jobs that train."""
    host = hosted(2450, policy)
    host.submit("a")
    host.submit("b")
    host.tick(0.0)
    for job in "ab":
        host.see(job, 1.0, memory_mb=1210)
    return host


def test_memory_all_but_used_up_pauses_the_newest_and_it_goes_on_when_there_is_room() -> None:
    host = crowded(ColocationSettings(policy="fifo", most_jobs=9))
    host.tick(4.0)
    paused = [job for job in "ab" if host.job(job).state == "paused"]
    assert len(paused) == 1
    other = "b" if paused == ["a"] else "a"
    host.submit("c", 10)
    assert host.tick(4.2) == [], "who is paused goes on first"
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


def test_evicted_jobs_wait_and_go_on_and_not_for_ever() -> None:
    """Memory stays short: first one is paused, then it gives its memory back."""
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
    assert host.tick(1000.0) == [paused]
    assert host.spawns[-1].resume


def test_an_evicted_job_that_had_nothing_to_save_yet_goes_on_too() -> None:
    """Asked to stop before it trained, a supervisor ends with the signal's code."""
    host = crowded(ColocationSettings(policy="fifo", most_jobs=9))
    host.tick(4.0)
    paused = next(job for job in "ab" if host.job(job).state == "paused")
    for now_s in (10.0, 16.0):
        host.tick(now_s)
    host.end(paused, 143, cause="exit code 143")
    assert host.job(paused).state == "waiting"


def test_who_is_started_again_and_again_fails() -> None:
    host = hosted(2450, ColocationSettings(policy="fifo", most_jobs=9))
    host.submit("a")
    host.tick(0.0)
    entry = host.core._jobs["a"]
    entry.starts = 5
    entry.stop_cause = "evict"
    host.end("a", 75)
    assert host.job("a").state == "failed"
    assert host.job("a").why.startswith("started 5 times and never completed")


def test_jobs_that_share_cores_get_their_own_once_they_are_measured() -> None:
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


def test_a_peak_is_held_against_the_estimate_for_the_workers_it_may_have_had_then() -> None:
    host = hosted()
    host.submit("a", 1000, least=1, most=3, worker_mb=500)
    host.tick(0.0)

    def after(workers: int, memory_mb: int, now_s: float) -> tuple[float, float]:
        host.see("a", now_s, workers=workers, memory_mb=memory_mb)
        return host.job("a").estimated_bytes / MB, host.job("a").peak_bytes / MB

    assert after(1, 700, 1.0) == (2000, 700), "it was told to have three: its status may be older than they"
    assert after(1, 800, 10.0) == (1000, 800), "it does not have them after all"
    assert after(2, 1100, 11.0) == (1500, 1100)
    assert after(3, 1050, 12.0) == (1500, 1100), "one that was added and took nothing yet"
    assert after(2, 1150, 13.0) == (2000, 1150), "the third may be there still"
    assert after(2, 1200, 20.0) == (1500, 1200)
    assert after(1, 900, 21.0) == (1500, 1200)


def test_a_peak_that_comes_with_the_result_is_of_the_workers_it_had_then() -> None:
    host = hosted()
    host.submit("a", 1000, least=1, most=3, worker_mb=500)
    host.tick(0.0)
    host.see("a", workers=1, memory_mb=800)
    host.end("a", 0, result=result(peak_bytes=1600 * MB, peak_workers=2))
    assert (host.job("a").estimated_bytes, host.job("a").peak_bytes) == (1500 * MB, 1600 * MB)


@pytest.mark.parametrize("policy", ["exclusive"])
def test_one_at_a_time_is_left_alone(policy: str) -> None:
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
