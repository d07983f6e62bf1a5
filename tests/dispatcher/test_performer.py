"""Effects that are performed later, and the answer for a run that cannot be reached."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest

from elastichost.dispatcher.admission_probe import ExamineArguments
from elastichost.dispatcher.core.effects import ConfineJob, ExamineJob, KillJob, LimitJob, ResizeJob
from elastichost.dispatcher.isolation.limits import JobLimits
from elastichost.dispatcher.isolation.tiers import Isolation
from elastichost.dispatcher.performer import Performer
from elastichost.dispatcher.processes import JobProcesses
from elastichost.dispatcher.resource_leases import Lender
from tests.clock import ManualClock
from tests.dispatcher.jobs import INVENTORY, hosted, request


class Examining:
    """Stands for the job processes: records the log of each examination that is started."""

    def __init__(self) -> None:
        self.logs: list[str] = []

    def examine(self, job: str, arguments: bytes, log: Path) -> None:
        assert msgspec.json.decode(arguments, type=ExamineArguments).log == str(log)
        self.logs.append(log.name)

    def end_examination(self, job: str) -> None:
        pass

    def signal(self, job: str, number: int) -> None:
        pass


@pytest.fixture
def crew() -> Examining:
    return Examining()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lender() -> Lender:
    return Lender()


@pytest.fixture
def performer(crew: Examining, clock: ManualClock, lender: Lender, tmp_path: Path) -> Performer:
    """A performer for a core with the waiting job "a"."""
    host = hosted()
    host.did(host.core.submit(msgspec.structs.replace(request("a"), folder=str(tmp_path)), 0.0))
    unused = cast(Isolation, None)
    return Performer(host.core, cast(JobProcesses, crew), lender, unused, INVENTORY, keeps_sizes=False, clock=clock)


def test_a_delayed_examination_starts_once_after_its_delay(
    performer: Performer, crew: Examining, clock: ManualClock
) -> None:
    performer.perform(ExamineJob("a", 10.0))
    clock.advance(9.0)
    performer.turn()
    assert crew.logs == []
    clock.advance(1.0)
    performer.turn()
    performer.turn()
    assert crew.logs == ["check.log"]


def test_a_job_that_is_cancelled_during_the_delay_is_not_examined(
    performer: Performer, crew: Examining, clock: ManualClock
) -> None:
    performer.perform(ExamineJob("a", 10.0))
    performer.perform(KillJob("a"))
    clock.advance(99.0)
    performer.turn()
    assert crew.logs == []


class Limited:
    """Stands for the isolation of jobs: keeps the limits that each got."""

    def __init__(self) -> None:
        self.limits: list[JobLimits] = []

    def change(self, job: str, limits: JobLimits) -> tuple[str, ...]:
        self.limits.append(limits)
        return ()


def test_limits_change_one_by_one_and_only_where_they_differ(performer: Performer) -> None:
    isolation = Limited()
    performer._isolation = cast(Isolation, isolation)
    performer._limits["a"] = JobLimits(memory_bytes=100, threads=2, nice=5)
    performer.perform(LimitJob("a", 300, 4))
    performer.perform(LimitJob("a", 300, 4))
    performer.perform(ConfineJob("a", (0, 1)))
    assert isolation.limits == [
        JobLimits(memory_bytes=300, threads=4, nice=5),
        JobLimits(memory_bytes=300, threads=4, nice=5, cores=(0, 1)),
    ]


def test_a_resize_that_cannot_be_sent_is_answered_with_the_problem(performer: Performer, lender: Lender) -> None:
    performer.perform(ResizeJob("a", memory_bytes=9))
    assert [answer.problem for answer in lender.answers()] == ["its supervisor takes no commands yet"]
