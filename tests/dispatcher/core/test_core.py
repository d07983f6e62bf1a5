"""The dispatcher's core: what it does with its jobs, event by event."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.dispatcher.core.effects import ExamineJob, KillJob, LimitJob, ResizeJob, StartJob, StopJob
from elastichost.dispatcher.facts import JobFailure, Size
from elastichost.errors import ConfigError
from elastichost.runs.events import JobDone, JobStopped
from elastichost.runs.events.text import text_of
from elastichost.tuner.colocation.settings import ColocationSettings
from tests.dispatcher.jobs import INVENTORY, MB, Hosted, ended, examined, hosted, look, request, running, seen

OUT_OF_MEMORY = JobFailure("MemoryBudgetError", "resources.memory allows 1 MB")
CRASH = JobFailure("NonFiniteError", "the loss is nan")


# --- the course of a job ----------------------------------------------------------------------------------------------


def test_a_job_from_the_queue_to_its_end() -> None:
    host = hosted()
    assert ExamineJob("a") in host.did(host.core.submit(request("a"), 0.0))
    assert host.tick(0.1) == [], "a job that is not examined yet does not start"
    host.submit("b", 1500)
    assert host.tick(1.0) == ["b"]
    (spawn,) = host.spawns
    assert (spawn.incarnation, spawn.resume, spawn.size) == (1, False, None)
    assert (spawn.lent.cores, spawn.lent.memory_bytes) == (INVENTORY.cores, 4000 * MB)
    assert host.job("b").charged_bytes == round(1.2 * 1500) * MB
    host.see("b", trained=0)
    assert host.job("b").state == "starting"
    host.see("b", trained=10, auc=0.7, memory_mb=700)
    assert (host.job("b").state, host.job("b").samples_trained) == ("running", 10)
    host.end("b", 0, 8.0)
    status = host.job("b")
    assert (status.state, status.exit_code, status.test_auc, status.ended_s) == ("done", 0, 0.7, 8.0)
    assert (status.charged_bytes, status.memory_bytes, status.peak_bytes) == (0, 0, 700 * MB)
    assert host.noted(JobDone) == [JobDone("b", 7.0)]
    assert not host.core.is_empty, "job a is still being examined"


def test_a_short_job_may_be_done_before_it_is_observed() -> None:
    host = hosted()
    host.submit("a")
    host.tick(0.0)
    host.end("a", 0)
    assert host.job("a").state == "done"
    assert host.core.is_empty


def test_the_status_of_an_earlier_supervisor_is_ignored() -> None:
    host = hosted()
    host.submit("a")
    host.tick(0.0)
    host.did(host.core.seen(msgspec.structs.replace(seen("a", trained=500), pids=(20, 21)), 1.0))
    assert (host.job("a").state, host.job("a").samples_trained) == ("starting", 0)


def test_events_after_the_end_of_a_job_are_ignored() -> None:
    host = running("a")
    host.end("a", 0)
    before = host.job("a")
    for late in (host.core.seen(seen("a"), 11.0), host.core.ended(ended("a", 1, "exit code 1"), None, 11.0)):
        assert late == ()
    assert host.job("a") == before


def test_a_job_of_open_size_is_started_in_one_of_its_modes() -> None:
    host = hosted(10_000)
    host.submit("a", least=1, most=4)
    host.tick(0.0)
    (spawn,) = host.spawns
    assert spawn.size is not None and 1 <= spawn.size.workers <= 4
    assert host.job("a").workers == spawn.size.workers


def test_a_run_of_an_earlier_dispatcher_is_resumed() -> None:
    host = hosted()
    host.did(host.core.submit(request("a"), 0.0, has_run=True))
    host.did(host.core.examined(examined("a"), 0.0))
    host.tick(0.0)
    assert host.spawns[0].resume


def test_twins_share_what_was_learnt_of_one_of_them() -> None:
    host = hosted()
    host.submit("a", 1000, twin="same")  # type: ignore[arg-type]
    host.tick(0.0)
    for second in range(1, 20):
        host.see("a", float(second), at=look(samples=20.0))
    host.submit("b", 1000, twin="same")  # type: ignore[arg-type]
    host.submit("c", 1000, twin="other")  # type: ignore[arg-type]
    host.tick(20.0)
    assert host.job("b").solo_samples_per_s == pytest.approx(10.0, rel=0.2)
    assert host.job("c").solo_samples_per_s > 1000


def test_a_job_that_waits_learns_from_a_twin_that_was_examined_before_it_ran() -> None:
    host = hosted(1500)  # room for one
    host.submit("a", 1000, twin="same")  # type: ignore[arg-type]
    host.submit("b", 1000, twin="same")  # type: ignore[arg-type]
    assert host.tick(0.0) == ["a"]
    for second in range(1, 20):
        host.see("a", float(second), at=look(samples=20.0))
    host.end("a", 0, 20.0)
    assert host.tick(20.0) == ["b"]
    assert host.job("b").solo_samples_per_s == pytest.approx(10.0, rel=0.2)


# --- admission --------------------------------------------------------------------------------------------------------


def test_charges_never_exceed_the_memory_and_a_waiting_job_has_a_reason() -> None:
    host = hosted(4000)
    for job in "abcd":
        host.submit(job, 1500)
    assert host.tick(0.0) == ["a", "b"]
    assert host.status().charged_bytes == 3600 * MB
    assert host.job("c").why == "needs 1,716.6 MiB of memory, 381.5 MiB of 3,814.7 MiB are free"
    host.end("a", 0)
    assert host.tick(11.0) == ["c"]


def test_a_job_alone_needs_no_margin() -> None:
    host = hosted(4000)
    host.submit("a", 3900)
    assert host.tick(0.0) == ["a"]
    assert host.status().charged_bytes == 4000 * MB


def test_a_job_that_can_never_run_fails_with_the_reason() -> None:
    host = hosted(4000)
    host.submit("a", 4001)
    host.submit("b")
    assert host.tick(0.0) == ["b"]
    assert host.job("a").state == "failed"
    assert host.job("a").why == "can never run here: needs 4,578.8 MiB of memory, 2,670.3 MiB of 3,814.7 MiB are free"
    assert host.job("a").ended_s == 0.0
    assert host.job("b").state == "starting", "the other job starts"


def test_the_charge_follows_the_memory_in_use_and_makes_others_wait() -> None:
    host = hosted(4000)
    host.submit("a", 1000)
    host.tick(0.0)
    host.see("a", memory_mb=2000)
    assert host.job("a").charged_bytes == 2200 * MB
    host.submit("b", 1600)
    assert host.tick(1.0) == []
    host.see("a", memory_mb=100)
    assert host.job("a").charged_bytes == 2200 * MB, "the charge stays at the peak"


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_examined_fails_with_its_typed_error() -> None:
    host = hosted()
    host.did(host.core.submit(request("a"), 0.0))
    host.did(host.core.ended(ended("a", 3, "exit code 3"), JobFailure("DataError", "no such file"), 1.0))
    assert (host.job("a").state, host.job("a").why) == ("failed", "DataError: no such file")
    assert host.tick(2.0) == []


@pytest.mark.parametrize(("code", "failure"), [(1, CRASH), (4, None), (-11, None), (75, None)])
def test_an_end_without_a_request_is_a_failure(code: int, failure: JobFailure | None) -> None:
    host = running("a", "b")
    host.end("a", code, cause="its cause", failure=failure)
    why = "NonFiniteError: the loss is nan" if failure else "its cause"
    assert (host.job("a").state, host.job("a").why, host.job("a").exit_code) == ("failed", why, code)
    assert host.job("b").state == "running"
    assert host.tick(11.0) == []


@pytest.mark.parametrize(
    ("code", "failure"), [(-9, None), (1, OUT_OF_MEMORY), (1, JobFailure("ArenaFullError", "full"))]
)
def test_a_job_out_of_memory_runs_once_more_alone_and_then_fails(code: int, failure: JobFailure | None) -> None:
    host = running("a", "b")
    host.end("a", code, cause="signal 9 (SIGKILL)", failure=failure)
    assert (host.job("a").state, host.job("a").out_of_memory) == ("waiting", 1)
    assert host.job("a").why.startswith("ran out of memory (")
    assert host.tick(11.0) == [], "b still runs"
    assert host.job("a").why.startswith("must run alone this time")
    host.end("b", 0)
    host.submit("c")
    assert host.tick(12.0) == ["a"]
    assert (host.spawns[-1].incarnation, host.spawns[-1].resume) == (2, True)
    assert host.job("a").estimated_bytes == 1500 * MB
    host.see("a", 13.0)
    assert host.tick(13.0) == [], "no job starts beside it"
    assert host.job("c").why.startswith("a runs alone")
    host.end("a", code, cause="signal 9 (SIGKILL)", failure=failure)
    assert (host.job("a").state, host.job("a").out_of_memory) == ("failed", 2)
    assert "though it ran alone" in host.job("a").why
    assert host.tick(14.0) == ["c"]


def test_the_estimate_is_raised_above_the_peak_but_not_above_the_host_s_memory() -> None:
    host = running("a", memory_mb=4000)
    host.see("a", memory_mb=3000)
    host.end("a", -9)
    host.tick(11.0)
    assert host.job("a").estimated_bytes == pytest.approx(3600 * MB, rel=1e-6)
    other = running("b", memory_mb=4000)
    other.see("b", memory_mb=9000)
    other.end("b", -9)
    assert other.tick(11.0) == ["b"]
    assert other.job("b").estimated_bytes == pytest.approx(4000 * MB, rel=1e-6)


def test_the_memory_of_a_killed_incarnation_does_not_count_for_the_next() -> None:
    host = running("a", memory_mb=4000)
    host.see("a", memory_mb=9000)
    host.end("a", -9)
    host.tick(11.0)
    assert host.job("a").memory_bytes == 0
    assert host.tick(12.0) == []
    assert host.job("a").state == "starting"


def grown_to_two_workers() -> Hosted:
    """A job that began with one worker (1000 MB) and got a second one (500 MB) when the other had ended."""
    settings = ColocationSettings(feedback=False)
    host = hosted(3000, settings)
    host.submit("other", 1200)
    host.tick(0.0)
    host.submit("a", 1000, least=1, most=2, worker_mb=500)
    assert host.tick(1.0) == ["a"] and host.job("a").workers == 1
    for job in ("a", "other"):
        host.see(job, 2.0, trained=10, at=look())
    host.end("other", 0, 3.0)
    for second in range(4, 40):
        host.see("a", float(second), trained=100 * second, at=look(), workers=1)
        host.tick(float(second))
        if any(isinstance(effect, ResizeJob) and effect.size for effect in host.effects):
            return host
    raise AssertionError("it got no second worker")


def test_the_limits_of_a_job_follow_its_size() -> None:
    host = grown_to_two_workers()
    begun = host.spawns[-1]
    kinds = [type(effect) for effect in host.effects]
    assert kinds.index(LimitJob) < kinds.index(ResizeJob), "there is room before the worker comes"
    (limit,) = [effect for effect in host.effects if isinstance(effect, LimitJob)]
    assert limit.job == "a" and limit.charged_bytes >= 1500 * MB > begun.charged_bytes
    assert limit.threads == begun.threads + 1


def test_margins_compare_a_peak_with_the_estimate_for_the_size_that_had_it() -> None:
    host = grown_to_two_workers()
    host.see("a", 50.0, trained=9000, memory_mb=1450, workers=2)
    host.end("a", 0, 60.0)
    assert host.core._ledger.margins.ratios[-1].ratio == pytest.approx(1450 / 1500, rel=0.01)


def test_an_eviction_does_not_raise_an_estimate_that_was_right_for_more_workers() -> None:
    host = grown_to_two_workers()
    entry = host.core._jobs["a"]
    host.see("a", 50.0, trained=9000, memory_mb=1480, workers=2)
    assert entry.placed is not None
    one = msgspec.structs.replace(entry.placed.placement, mode=0)
    entry.placed = msgspec.structs.replace(entry.placed, placement=one)  # it was shrunk
    entry.stop_cause = "evict"
    host.end("a", 75, 60.0)
    assert entry.raised == pytest.approx(1.0), "1480 MB is what two workers are expected to need"


# --- asked to end -----------------------------------------------------------------------------------------------------


def test_a_job_can_be_cancelled_while_it_waits_starts_or_runs() -> None:
    host = running("a", "b")
    host.did(host.core.submit(request("looked at"), 0.0))
    host.cancel("looked at")
    assert KillJob("looked at") in host.effects
    assert host.job("looked at").state == "cancelled"
    assert host.core.examined(examined("looked at"), 6.0) == (), "the result of the examination comes too late"
    host.submit("starts")
    host.tick(1.0)
    for job in ("starts", "a"):
        host.cancel(job)
        assert StopJob(job) in host.effects
        assert host.job(job).state == "stopping"
        host.end(job, 75)
        assert host.job(job).state == "cancelled"
    host.cancel("b")
    host.end("b", 0)
    assert host.job("b").state == "done", "the job ended before it was stopped"
    assert host.tick(20.0) == []


def test_a_cancel_of_an_unknown_or_ended_job_is_an_error() -> None:
    host = running("a")
    with pytest.raises(ConfigError, match="there is no job 'aa'.*did you mean"):
        host.core.cancel("aa", 1.0)
    host.end("a", 0)
    with pytest.raises(ConfigError, match="a is already done"):
        host.core.cancel("a", 11.0)


def test_a_cancelled_job_is_not_continued_by_the_next_dispatcher() -> None:
    host = running("a", "b")
    host.cancel("a")
    assert host.job("a").state == "stopping", "it saves"
    assert [request.job for request, _ in host.core.unfinished()] == ["b"]


def test_no_job_is_asked_twice_to_stop() -> None:
    """A second SIGTERM kills a supervisor before it has saved."""
    host = running("a", "b")
    host.cancel("a")
    host.cancel("a")
    host.did(host.core.stop(6.0))
    host.did(host.core.stop(6.5))
    assert sorted(host.stops) == ["a", "b"]
    host.end("a", 75)
    assert host.job("a").state == "cancelled"


def test_when_the_dispatcher_stops_all_jobs_stop_and_unfinished_ones_are_kept() -> None:
    host = running("a", "b")
    host.submit("waits", 9000)
    host.did(host.core.submit(request("looked at"), 0.0))
    host.tick(0.5)
    host.did(host.core.stop(1.0))
    assert sorted(host.stops) == ["a", "b"]
    assert KillJob("looked at") in host.effects
    host.end("a", 75)
    host.end("b", 0)
    assert [host.job(job).state for job in ("a", "b", "waits", "looked at")] == [
        "stopped",
        "done",
        "stopped",
        "stopped",
    ]
    assert host.tick(2.0) == [], "no job starts any more"
    assert {(kept.job, has_run) for kept, has_run in host.core.unfinished()} == {
        ("a", True),
        ("waits", False),
        ("looked at", False),
    }
    assert host.core.is_empty


def test_a_job_that_is_killed_while_the_dispatcher_stops_can_be_resumed() -> None:
    host = running("a")
    host.did(host.core.stop(1.0))
    host.end("a", -9)
    assert host.job("a").state == "stopped"
    (stopped,) = host.noted(JobStopped)
    assert stopped == JobStopped("a", "/home/user/runs/a", False, "exit")
    assert not text_of(stopped).startswith("the job saved")
    assert [(kept.job, has_run) for kept, has_run in host.core.unfinished()] == [("a", True)]


def test_the_status_of_the_host_adds_up() -> None:
    host = running("a", "b")
    status = host.status()
    assert (status.cores, status.memory_bytes, status.gpus) == (4, 10_000 * MB, 0)
    assert status.used_bytes == 1000 * MB
    assert status.cpu_cores == 1.0
    assert status.charged_bytes == 2400 * MB == sum(job.charged_bytes for job in status.jobs)
    assert status.last_decision.startswith("b: ")


def test_a_start_has_the_size_and_the_lent_resources() -> None:
    host = hosted(10_000)
    host.submit("a", least=2, most=2)
    host.submit("b", least=1, most=3)
    host.tick(0.0)
    spawns = {spawn.job: spawn for spawn in host.spawns}
    assert spawns["a"].size is None, "its size is that of its job file"
    workers = host.job("b").workers
    assert spawns["b"].size == Size(workers, 1, 1)
    assert all(isinstance(one, StartJob) and one.lent.gpu is None for one in spawns.values())


def test_the_oldest_ended_jobs_are_forgotten_and_counted() -> None:
    host = running("a", "b", "c", "d", "e")
    host.end("b", 0, 10.0)
    host.end("c", 1, 11.0)
    host.end("a", 0, 12.0)
    host.end("d", 0, 13.0)
    host.submit("waits", 50_000)
    assert host.core.forget_ended(4, frozenset()) == ()
    assert host.core.forget_ended(1, {"c"}) == ("b", "a"), "the newest stays, and one that may still have a process"
    status = host.status()
    assert [(job.job, job.state) for job in status.jobs] == [
        ("c", "failed"),
        ("d", "done"),
        ("e", "running"),
        ("waits", "waiting"),
    ]
    assert status.left_out == {"done": 2}
    assert host.core.forget_ended(0, frozenset()) == ("c", "d")
    assert host.status().left_out == {"done": 3, "failed": 1}
    with pytest.raises(ConfigError, match="there is no job"):
        host.cancel("c")


def test_no_job_is_forgotten_that_the_next_dispatcher_continues() -> None:
    host = running("a", "b")
    host.submit("waits", 50_000)
    host.did(host.core.stop(1.0))
    host.end("a", 75, 2.0)
    unfinished = list(host.core.unfinished())
    assert host.core.forget_ended(0, frozenset()) == ()
    assert list(host.core.unfinished()) == unfinished and len(unfinished) == 3
