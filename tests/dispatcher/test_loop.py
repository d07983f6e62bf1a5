"""What the loop of the dispatcher does where the disk is full."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.dispatcher.directory import HostDirectory
from elastichost.dispatcher.loop import HostLoop
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
    loop: Any = SimpleNamespace(_asked_to_stop=0, _directory=HostDirectory(tmp_path, -1), submit=failing(errno.ENOSPC))
    reply = HostLoop._submitted(loop, SubmitMsg(name="a", toml=JOB, working_directory="/", weight=1.0))
    assert isinstance(reply, RefusedMsg) and "cannot write" in reply.message and not reply.is_usage
