"""The log of a process on a disk that becomes full."""

from __future__ import annotations

import os
from pathlib import Path

from elastichost.supervisor.launch.child import log_stream
from tests.full_disk import file_limit


def test_a_print_on_a_full_disk_raises_nothing_and_missing_text_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.1.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = log_stream(descriptor)
    print("before", file=log)
    with file_limit(path.stat().st_size):
        for _ in range(3):
            print("x" * 99, file=log, flush=True)
    print("after", file=log)
    log.flush()
    os.close(descriptor)
    assert path.read_text() == "before\n[300 bytes are missing here: the disk was full]\nafter\n"
