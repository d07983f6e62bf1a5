"""The dispatcher plans with the resources that a run has, not with those that it was told to have."""

from __future__ import annotations

import msgspec

from elastichost.dispatcher.core.allocation_drift import DIFFERS_S, Answer
from elastichost.dispatcher.core.effects import ConfineJob, ResizeJob
from elastichost.dispatcher.facts import Size
from elastichost.metrics import PlanStatus, ProposedPlan
from elastichost.runs.events import JobShared
from elastichost.runs.events.text import text_of
from tests.dispatcher.jobs import INVENTORY, Hosted, hosted, look, seen


def of_open_size(*jobs: str) -> Hosted:
    """Returns a host on which all these jobs train and are measured, with the workers that they were started with."""
    host = hosted(10_000)
    for job in jobs:
        host.submit(job, 500, least=1, most=3, worker_mb=50)
    host.tick(0.0)
    for job in jobs:
        sees(host, job, 1.0, host.job(job).workers)
    return host


def sees(host: Hosted, job: str, now_s: float, workers: int) -> None:
    """The core observes that the job trains with this many workers."""
    one = seen(job, at=look(workers=workers))
    assert one.status is not None
    status = msgspec.structs.replace(one.status, plan=PlanStatus(workers, 1))
    host.did(host.core.seen(msgspec.structs.replace(one, status=status), now_s))


def resizes(host: Hosted, now_s: float) -> dict[str, ResizeJob]:
    """Ticks; returns the resizes that jobs are sent."""
    host.tick(now_s)
    return {effect.job: effect for effect in host.effects if isinstance(effect, ResizeJob)}


def test_a_job_keeps_its_cores_when_its_run_refuses_others() -> None:
    host = of_open_size("a", "b")
    told = resizes(host, 2.0)
    cores = host.job("a").cores
    assert cores != INVENTORY.cores and told["a"].cores == cores
    host.did(host.core.answered(Answer(told["a"]), 2.1))
    assert host.effects == ()
    assert host.job("a").cores == cores
    host.did(host.core.answered(Answer(told["b"], "the run is stopping"), 2.2))
    assert host.job("b").cores == INVENTORY.cores, "every run starts with all cores"
    assert ConfineJob("b", INVENTORY.cores) in host.effects
    host.did(host.core.answered(Answer(ResizeJob("a", cores=(3,)), "its supervisor did not answer in time"), 2.3))
    assert host.job("a").cores == cores, "the cores of the command that the run took"


def test_after_a_refused_size_the_run_s_status_counts() -> None:
    host = of_open_size("a")
    has = host.job("a").workers
    assert has > 1
    sees(host, "a", 2.0, 1)  # as its own status says
    host.did(host.core.answered(Answer(ResizeJob("a", Size(has, 1, 1)), "no"), 2.1))
    assert host.job("a").workers == 1
    (shared,) = host.noted(JobShared)
    assert (shared.job, shared.size, shared.cores) == ("a", "1 worker", ())
    assert text_of(shared) == (
        f"the job now has 1 worker: its run does not have the {has} workers that it was told to have; the dispatcher "
        "plans with its present size"
    )


def test_after_each_refusal_the_next_command_comes_later() -> None:
    host = of_open_size("a", "b")
    told = resizes(host, 2.0)["b"]
    host.did(host.core.answered(Answer(told, "no"), 3.0))
    assert resizes(host, 12.0) == {}
    again = resizes(host, 14.0)["b"]
    assert again.cores is not None
    host.did(host.core.answered(Answer(again, "no"), 15.0))
    assert resizes(host, 29.0) == {}


def test_a_size_other_than_the_commanded_one_counts_after_a_while() -> None:
    """The command was lost, and no answer came."""
    host = of_open_size("a")
    has = host.job("a").workers
    for now_s in range(2, 2 + int(DIFFERS_S)):
        sees(host, "a", float(now_s), 1)
        assert host.job("a").workers == has, "the run may still change its size"
    sees(host, "a", 2.0 + DIFFERS_S, 1)
    assert host.job("a").workers == 1
    sees(host, "a", 30.0, 1)
    sees(host, "a", 60.0, 1)
    assert host.job("a").workers == 1


def test_a_run_that_reaches_the_commanded_size_keeps_it() -> None:
    host = of_open_size("a")
    has = host.job("a").workers
    sees(host, "a", 2.0, 1)
    sees(host, "a", 4.0, has)
    sees(host, "a", 11.0, 1)
    sees(host, "a", 13.0, has)
    assert host.job("a").workers == has


def test_answers_of_a_job_without_a_process_are_ignored() -> None:
    host = of_open_size("a")
    host.end("a", 0)
    assert host.core.answered(Answer(ResizeJob("a", cores=(1,)), "no"), 9.0) == ()
    assert host.job("a").state == "done"


def granted(host: Hosted) -> ResizeJob:
    """The job's run proposes a second PS, and the dispatcher grants it."""
    has = host.job("a").workers
    host.tick(2.0)  # it gets cores of its own, if there are others
    one = seen("a", at=look(workers=has))
    assert one.status is not None
    plan = PlanStatus(has, 1, 1)
    proposal = ProposedPlan(plan, PlanStatus(has, 2, 1), "try", "it may be faster")
    status = msgspec.structs.replace(one.status, plan=plan, proposal=proposal)
    for now_s in (9.0, 10.0):
        host.did(host.core.seen(msgspec.structs.replace(one, status=status), now_s))
        if (found := resizes(host, now_s).get("a")) is not None:
            break
    assert found is not None and found.is_proposal and host.job("a").servers == 2
    return found


def runs(host: Hosted, plan: PlanStatus, now_s: float) -> None:
    one = seen("a", at=look(workers=plan.workers))
    assert one.status is not None
    host.did(host.core.seen(msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, plan=plan)), now_s))


def test_after_a_refused_grant_the_job_has_the_size_of_its_run() -> None:
    host = of_open_size("a")
    told = granted(host)
    assert host.job("a").own_tuner
    host.did(host.core.answered(Answer(told, "the run's tuner does not propose this size any more"), 11.0))
    assert host.job("a").servers == 1
    assert host.noted(JobShared)[0].size.endswith("1 PS")


def test_a_lost_grant_counts_as_not_made_after_a_while() -> None:
    """Neither the run nor an answer shows the granted size."""
    host = of_open_size("a")
    has = granted(host).size
    assert has is not None
    for now_s in (11.0, 11.5 + DIFFERS_S):
        assert host.job("a").servers == 2
        runs(host, PlanStatus(has.workers, 1, 1), now_s)
    assert host.job("a").servers == 1


def test_a_killed_job_starts_with_the_size_that_was_granted_and_nothing_is_tried_then() -> None:
    host = of_open_size("a")
    granted(host)
    host.end("a", -9, 11.0, cause="killed")
    host.tick(60.0)
    (again,) = [one for one in host.spawns if one.incarnation == 2]
    assert again.size is not None and again.size.servers == 2
    assert host.job("a").own_tuner == ""
