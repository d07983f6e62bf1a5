"""What the loop of the dispatcher does where the disk is full, and what it takes for an end by lack of memory."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.dispatcher.facts import JobFailure
from elastichost.dispatcher.loop import HostLoop, _may_be_oom
from elastichost.wire.commands import RefusedMsg, SubmitMsg

JOB = '[model]\nbuild = "a:b"\n[data]\nformat = "synthetic"\n'


def failing(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, "cannot write")

    return fail


def test_a_full_disk_does_not_end_the_dispatcher_when_a_job_ends() -> None:
    """Its end would kill every job."""
    HostLoop._keep_queue(SimpleNamespace(_write_queue=failing(errno.ENOSPC)))  # type: ignore[arg-type]
    with pytest.raises(OSError, match="cannot write"):
        HostLoop._keep_queue(SimpleNamespace(_write_queue=failing(errno.EACCES)))  # type: ignore[arg-type]


def test_a_job_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    loop: Any = SimpleNamespace(
        _asked_to_stop=0, _directory=SimpleNamespace(path=tmp_path), submit=failing(errno.ENOSPC)
    )
    reply = HostLoop._submitted(loop, SubmitMsg(name="a", toml=JOB, working_directory="/", weight=1.0))
    assert isinstance(reply, RefusedMsg) and "cannot write" in reply.message and not reply.is_usage


@pytest.mark.parametrize(
    ("code", "failure", "is_oom"),
    [
        (-9, None, True),
        (1, JobFailure("RestartBudgetError", "a worker ended 4 times"), True),
        (1, JobFailure("DataError", "row 7: label is 3"), False),
        (75, None, False),
        (0, None, False),
    ],
)
def test_a_job_that_has_lost_a_process_at_its_limit_may_end_for_another_reason(
    code: int, failure: JobFailure | None, is_oom: bool
) -> None:
    assert _may_be_oom(code, failure) is is_oom
