"""Mapped files are sparse, and their memory is allocated before it is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.files import MappedFile
from elastichost.errors import ArenaError


def test_processes_share_what_is_written(tmp_path: Path) -> None:
    first = MappedFile.create(tmp_path / "file", 1 << 30)
    second = MappedFile.attach(tmp_path / "file", 1 << 30)
    first.allocate(1 << 20, 4096, "a test")
    first.array(np.int64, 1 << 20, 4)[:] = [1, 2, 3, 4]
    assert second.array(np.int64, 1 << 20, 4).tolist() == [1, 2, 3, 4]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    first.close()
    second.close()


def test_only_allocated_pages_take_memory_and_punching_gives_them_back(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "file", 1 << 30)
    before = file.touched_bytes()
    file.allocate(1 << 20, 1 << 16, "a test")
    view = file.array(np.uint8, 1 << 20, 1 << 16)
    view[:] = 7
    assert file.touched_bytes() >= before + (1 << 16)
    file.punch(1 << 20, 1 << 15)
    assert not view[: 1 << 15].any()
    assert (view[1 << 15 :] == 7).all()
    file.close()


def test_a_view_outlives_close(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "file", 4096)
    view = file.array(np.int64, 0, 2)
    file.close()
    file.close()
    view[0] = 5
    assert view[0] == 5


def test_missing_existing_and_truncated_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="cannot open"):
        MappedFile.attach(tmp_path / "file", 4096)
    MappedFile.create(tmp_path / "file", 4096).close()
    with pytest.raises(ArenaError, match="cannot open"):
        MappedFile.create(tmp_path / "file", 4096)
    with pytest.raises(ArenaError, match="the layout requires 8192"):
        MappedFile.attach(tmp_path / "file", 8192)


FULL = """
import sys
from pathlib import Path
from elastichost.arena.files import MappedFile
from elastichost.errors import ArenaFullError
file = MappedFile.create(Path(sys.argv[1]) / "file", 1 << 30)
file.allocate(0, 1 << 19, "the first")
try:
    file.allocate(1 << 20, 1 << 21, "table 'clicks'")
except ArenaFullError as error:
    assert "table 'clicks' needs 2097152 more bytes" in error.message, error.message
    print("full")
"""


def test_a_full_file_system_is_a_typed_error(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    script = f'mount -t tmpfs -o size=1m none {tmp_path} && exec "$@"'
    mount = [unshare or "unshare", "-Urm", "sh", "-c", script, "sh"]
    if unshare is None or subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("this host does not let a test mount a small tmpfs")
    run = subprocess.run(
        [*mount, sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stdout.strip() == "full", run.stderr
