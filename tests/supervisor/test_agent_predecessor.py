"""A folder in the temporary directory has a name that any user can guess. It must not make an agent kill a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from elastichost.arena.host import OWNER_FILE, read_owner
from elastichost.arena.owner import Owner, end_owner, owner_of
from elastichost.errors import ArenaError
from elastichost.supervisor.remote import agent
from elastichost.supervisor.remote import messages as agent_messages

OTHER_USER = 65_534


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that belongs to no run."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory with a short path, because paths of sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="eh-", dir="/tmp") as folder:
        for name in ("TMPDIR", "ELASTICHOST_ARENA_DIR"):
            monkeypatch.setenv(name, folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


def forge(folder: Path, owner: Owner) -> None:
    """Creates the folder of a run with a forged owner file."""
    folder.mkdir(mode=0o700)
    (folder / OWNER_FILE).write_bytes(msgspec.json.encode(owner))


def begin(run_id: str) -> None:
    """An agent of the run begins, and ends the agent before it."""
    order = agent_messages.OpenMsg(run_id=run_id, host=2, files=(), imports=(), calls=())
    agent._Host(order)._end_predecessor()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to another user")
def test_a_forged_owner_of_another_user_kills_no_process(temporary: Path, bystander: subprocess.Popen[bytes]) -> None:
    folder = temporary / "elastichost-run-r1-h2"
    forge(folder, owner_of(bystander.pid, folder))
    os.chown(folder / OWNER_FILE, OTHER_USER, OTHER_USER)
    os.chown(folder, OTHER_USER, OTHER_USER)
    with pytest.raises(ArenaError, match=f"belongs to the user with id {OTHER_USER}"):
        begin("r1")
    assert bystander.poll() is None
    with pytest.raises(ArenaError, match="so it is ignored"):
        read_owner(folder)


def test_a_folder_that_others_can_write_to_or_a_link_is_refused(
    temporary: Path, bystander: subprocess.Popen[bytes]
) -> None:
    folder = temporary / "elastichost-run-r1-h2"
    forge(folder, owner_of(bystander.pid, folder))
    folder.chmod(0o777)
    with pytest.raises(ArenaError, match="open to other users"):
        begin("r1")
    with pytest.raises(ArenaError, match="so it is ignored"):
        read_owner(folder)
    folder.chmod(0o700)
    (temporary / "elastichost-run-r2-h2").symlink_to(folder)
    with pytest.raises(ArenaError, match="is not a directory"):
        begin("r2")
    assert bystander.poll() is None


def test_a_process_is_ended_only_if_its_start_time_and_boot_are_those_of_the_owner(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    true = owner_of(bystander.pid, tmp_path)
    earlier = msgspec.structs.replace(true, start_time_ticks=true.start_time_ticks - 1)
    assert not end_owner(earlier)
    assert not end_owner(msgspec.structs.replace(true, boot_id="another"))
    assert bystander.poll() is None
    assert end_owner(true)
    assert bystander.wait(30) == -9
