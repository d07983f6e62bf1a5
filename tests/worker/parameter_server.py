"""Parameter servers in threads of the test: the real socket, session, service and store, without a supervisor."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.applier import RowApplier
from elastichost.ps.rows.store import RowStore
from elastichost.ps.rules import Rules
from elastichost.ps.service import DataService
from elastichost.ps.session import Session
from elastichost.sharding import even_shard_map
from elastichost.wire.facts import ServerAddress
from elastichost.wire.sockets import Caller, DataServer, wait_readable
from elastichost.worker.channels.channel import DirectoryHolder
from elastichost.worker.channels.routing import Directory

JOB = 7


class ThreadedServers:
    """`count` PS over one arena that share its buckets evenly; `holder` gives a worker their addresses. hosts: the host
    of each PS in the shard map; without it all are on host 0. is_sync: whether the job is in sync mode."""

    def __init__(
        self, arena: Arena, run_dir: Path, count: int = 1, hosts: tuple[int, ...] = (), *, is_sync: bool = False
    ) -> None:
        self.arena, self._is_sync = arena, is_sync
        self.run_dir = run_dir
        tables = arena.model.tables
        self._map = even_shard_map(tables, tuple(range(count)), epoch=1)
        self.services: list[DataService] = []
        self.appliers: dict[int, RowApplier] = {}
        self.sessions: dict[int, Session] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._addresses: dict[int, ServerAddress] = {}
        for index in range(count):
            address = f"ipc://{run_dir}/s{index}"
            self._addresses[index] = ServerAddress(index, 1, address, hosts[index] if hosts else 0)
            thread = threading.Thread(target=self._serve, args=(index, address), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, index: int, address: str) -> None:
        store = RowStore(self.arena, self.arena.layout.seed)
        store.adopt(self._map.buckets_of(index), initialise=True)
        session = self.sessions[index] = Session(shard_map_epoch=1)
        applier = self.appliers[index] = RowApplier(
            self.arena.directory, index, len(self.arena.model.tables), store.lines
        )
        service = DataService(
            self.arena.model,
            session,
            store,
            DenseStore(self.arena),
            DenseOptimizerSpec(),
            applier,
            AppliedLog(self.run_dir),
            Rules(
                is_sync=self._is_sync,
                sends_gradients=False,
                batch_size=1 << 20,
                micro_batches=128,
                places=self.arena.layout.max_workers,
            ),
        )
        service.is_dense_owner = index == 0
        self.services.append(service)
        server = DataServer(address, JOB, ProcessId("server", index, 1))
        while not self._stop.is_set():
            if not wait_readable(server.sockets, 0.05):
                continue
            received = server.receive()
            assert received is not None
            try:
                outgoing = service.handle(*received)
            except ProtocolError as error:
                outgoing = [service.refused(received[0], received[1].message, error)]
            for item in outgoing:
                server.send(item.peer, item.message, item.frames)
        server.close()

    def holder(self, worker: ProcessId) -> DirectoryHolder:
        holder = DirectoryHolder(Caller(JOB, worker))
        holder.publish(self.directory(1))
        return holder

    def directory(self, epoch: int, served: tuple[tuple[int, int], ...] = ()) -> Directory:
        """A shard map with these owners and any epoch."""
        owners = tuple(np.array(row, dtype=np.uint16) for row in self._map.owners)
        return Directory(epoch, dict(self._addresses), 0, owners, served=served)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
