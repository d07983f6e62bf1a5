"""A file behind a real web server in a process of its own, for tests of sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.sources.remote_file import remote_file
from elastichost.datasets.sources.transports.addressed_file import AddressedFile

__all__ = ["CONTENT", "file", "folder", "server"]

CONTENT = np.random.default_rng(3).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(CONTENT)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[SourceServer]:
    with SourceServer(folder, bytes_per_s=4e6) as made:
        yield made


@pytest.fixture
def file(server: SourceServer) -> AddressedFile:
    return remote_file(server.url("data.bin"))
