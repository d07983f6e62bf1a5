"""What is chosen once for a worker: lookups of the model, row preparation, commit strategy and loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.config.job import JobSpec, load_job
from elastichost.plan import Access
from elastichost.wire.child import ChildArguments
from elastichost.wire.sockets import Caller
from elastichost.worker.access.direct import DirectLookup
from elastichost.worker.access.direct_rows import DirectRowPreparer
from elastichost.worker.access.mixed import MixedLookup
from elastichost.worker.access.mixed_rows import MixedRowPreparer
from elastichost.worker.access.served import ServedLookup
from elastichost.worker.access.served_rows import ServedRowPreparer
from elastichost.worker.channels.channel import DirectoryHolder, pump_nothing
from elastichost.worker.commit.dense_transport import HeldParameters, MappedParameters, ReceivedParameters
from elastichost.worker.commit.direct_commit import DirectCommit
from elastichost.worker.commit.mixed_commit import MixedCommit
from elastichost.worker.commit.served_commit import ServedCommit
from elastichost.worker.commit.sync_commit import SyncCommit
from elastichost.worker.loop import WorkerLoop
from elastichost.worker.main import worker_loop
from elastichost.worker.model.embedding import collections_of
from elastichost.worker.pipeline import PREFETCH_BATCHES, PREFETCH_PULLED
from elastichost.worker.setup import build_parts, build_sync_parts
from elastichost.worker.sync.sync_loop import SyncWorkerLoop
from tests.worker.test_footprint import built, job_of


class Setup:
    """A job, and an arena with its model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.job, reader = job_of(directory)
        _, spec = built(self.job, reader)
        (directory / "arena").mkdir()
        self.arena = Arena.create(directory / "arena", plan_layout(spec, 3, 1 << 24))

    def arguments(self, access: Access, host: int = 0) -> ChildArguments:
        folder = str(self.directory)
        return ChildArguments(
            role="worker",
            index=0,
            incarnation=1,
            job_id=7,
            control_address=f"ipc://{folder}/control",
            run_dir=folder,
            arena_directory=f"{folder}/arena",
            socket_directory=folder,
            cores=(0,),
            threads=1,
            access=access,
            supervisor_pid=1,
            host=host,
        )

    def facts(self, access: Access, host: int = 0) -> tuple[ChildArguments, JobSpec, DirectoryHolder, Any]:
        arguments = self.arguments(access, host)
        return arguments, self.job, DirectoryHolder(Caller(7, arguments.process, host)), pump_nothing


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    made.arena.close()


@pytest.mark.parametrize(
    ("access", "host", "lookup", "rows", "strategy", "parameters", "ahead"),
    [
        ("direct", 0, DirectLookup, DirectRowPreparer, DirectCommit, MappedParameters, PREFETCH_BATCHES),
        ("served", 0, ServedLookup, ServedRowPreparer, ServedCommit, ReceivedParameters, PREFETCH_PULLED),
        ("served", 1, ServedLookup, ServedRowPreparer, ServedCommit, ReceivedParameters, PREFETCH_PULLED),
        ("mixed", 0, MixedLookup, MixedRowPreparer, MixedCommit, MappedParameters, PREFETCH_PULLED),
        ("mixed", 1, MixedLookup, MixedRowPreparer, MixedCommit, HeldParameters, PREFETCH_PULLED),
    ],
)
def test_access_is_chosen_once(
    setup: Setup, access: Access, host: int, lookup: type, rows: type, strategy: type, parameters: type, ahead: int
) -> None:
    """The dense vector lies in the arena of host 0."""
    parts = build_parts(*setup.facts(access, host))
    assert type(parts.strategy) is strategy
    assert type(parts.strategy._parameters) is parameters
    assert type(parts.train_rows) is type(parts.test_rows) is rows
    assert parts.train_rows.batches_ahead == ahead
    replaced = [collection._arena_lookup for _, collection in collections_of(parts.runner._model)]
    assert replaced
    assert {type(one) for one in replaced} == {lookup}
    assert set(parts.loaded) == (set() if access == "direct" else set(replaced))
    parts.strategy.close()


def test_sync_mode_has_a_strategy_of_its_own(setup: Setup) -> None:
    parts = build_sync_parts(*setup.facts("served"))
    assert isinstance(parts.strategy, SyncCommit)
    assert isinstance(parts.train_rows, ServedRowPreparer)
    assert parts.loaded
    assert all(isinstance(lookup, ServedLookup) for lookup in parts.loaded)
    parts.strategy.close()


@pytest.mark.parametrize("access", ["direct", "served"])
def test_traffic_of_all_channels_is_counted_once(setup: Setup, access: Access) -> None:
    parts = build_parts(*setup.facts(access))
    channels = [*parts.strategy.channels, parts.train_rows.channel]
    assert len(channels) == (2 if access == "direct" else 3)
    for number, channel in enumerate(channels):
        channel.traffic.sent, channel.traffic.received = 10**number, 2 * 10**number
    sent = 11 if access == "direct" else 111
    assert parts.take_traffic() == (sent, 2 * sent)
    assert parts.take_traffic() == (0, 0)
    parts.strategy.close()


@pytest.mark.parametrize(("mode", "kind"), [("async", WorkerLoop), ("bounded", WorkerLoop), ("sync", SyncWorkerLoop)])
def test_the_mode_chooses_the_loop(setup: Setup, tmp_path: Path, mode: str, kind: type) -> None:
    path = tmp_path / "job.toml"
    path.write_text(path.read_text() + f'[train]\nmode = "{mode}"\n')
    loop = worker_loop(setup.arguments("served"), load_job(path, environ={}))
    assert type(loop) is kind
    loop.close()
