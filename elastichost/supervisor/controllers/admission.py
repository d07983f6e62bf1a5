"""Who learns where the PS are, when these are on several machines: whoever all of them let in.

ZeroMQ does not knock twice: a worker that comes to a gate before that knows its key is sent away for good.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastichost.plan import ProcessId
from elastichost.supervisor.context import Run
from elastichost.wire.control import ShardMapUpdateMsg

__all__ = ["Admission"]


class Admission:
    """Without other machines everybody is told at once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._kept_out: set[ProcessId] = set()

    @property
    def waiting(self) -> tuple[ProcessId, ...]:
        """Workers that some PS do not let in yet."""
        return tuple(sorted(self._kept_out))

    def greet(self, server: ProcessId) -> None:
        """A PS has come: it is told who may come in, before anything else."""
        if self._run.keyring is not None:
            self._run.send(server, self._run.keyring.message())

    def tell(self, worker: ProcessId, update: ShardMapUpdateMsg, frames: Sequence[bytes]) -> None:
        """Where the PS are, now or when the last of them has answered."""
        self._kept_out.discard(worker)
        keyring = self._run.keyring
        incarnations = (ProcessId("server", server.index, server.incarnation) for server in update.servers)
        if keyring is not None and not all(keyring.is_known_to(worker, incarnation) for incarnation in incarnations):
            self._kept_out.add(worker)
            return
        self._run.send(worker, update, frames)

    def forget(self, worker: ProcessId) -> None:
        """Its incarnation has ended."""
        self._kept_out.discard(worker)

    @property
    def servers_know_each_other(self) -> bool:
        """Each lets the others in: buckets can go between them."""
        keyring = self._run.keyring
        incarnations = [record.process for record in self._run.fleet.live("server") if record.address]
        return keyring is None or all(keyring.is_known_to(one, other) for one in incarnations for other in incarnations)
