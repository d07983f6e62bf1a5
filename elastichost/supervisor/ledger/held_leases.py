"""The leases that worker incarnations hold. Pure. A run with hundreds of workers asks for the leases of each of them in
every turn of its event loop, so they are kept by worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastichost.plan import ProcessId
from elastichost.supervisor.ledger.state import Span
from elastichost.wire.facts import Lease

__all__ = ["HeldLease", "HeldLeases"]


@dataclass(slots=True)
class HeldLease:
    """A lease and what is known of its progress. applied_stop: positions before it are applied. samples, skipped:
    counts so far. failures: deaths on the first batch of the lease."""

    lease: Lease
    worker: ProcessId
    failures: int
    applied_stop: int
    samples: int = 0
    skipped: int = 0

    @property
    def rest(self) -> Span:
        """The positions that are not applied."""
        failures = self.failures if self.applied_stop == self.lease.start else 0
        return Span(self.lease.unit, self.applied_stop, self.lease.stop, failures)


class HeldLeases:
    """Leases by worker incarnation. The ids of leases ascend, so those of a worker are in the order of their grants."""

    def __init__(self) -> None:
        self._of: dict[ProcessId, dict[int, HeldLease]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, held: HeldLease) -> None:
        self._of.setdefault(held.worker, {})[held.lease.lease_id] = held

    def find(self, worker: ProcessId, lease_id: int) -> HeldLease | None:
        """None: this incarnation does not hold the lease."""
        return self._of.get(worker, {}).get(lease_id)

    def of(self, worker: ProcessId) -> tuple[HeldLease, ...]:
        """Those of a worker, in the order in which they were granted and are trained."""
        return tuple(self._of.get(worker, {}).values())

    def count(self, worker: ProcessId) -> int:
        """The number of leases of a worker."""
        return len(self._of.get(worker, ()))

    def remove(self, held: HeldLease) -> None:
        """Raises KeyError when it is not held."""
        leases = self._of[held.worker]
        del leases[held.lease.lease_id]
        if not leases:
            del self._of[held.worker]

    def workers(self) -> Iterable[ProcessId]:
        """The incarnations that hold a lease."""
        return self._of.keys()

    def in_order(self) -> list[HeldLease]:
        """All leases, in the order of their grants."""
        return sorted(
            (one for leases in self._of.values() for one in leases.values()), key=lambda one: one.lease.lease_id
        )
