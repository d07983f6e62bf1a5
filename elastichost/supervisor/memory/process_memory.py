"""The private memory of the processes of a run, by host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.fleet import ProcessRecord

__all__ = ["EXPECTED_BYTES", "PrivateMemory"]

# The size of a process that is not measured yet.
EXPECTED_BYTES = 128 << 20


class PrivateMemory:
    """Sums up private memory. `here` in all methods: pid -> bytes, for each measured process of this machine. Agents
    measure the processes of other machines."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self.unmeasured = 0  # processes that count with EXPECTED_BYTES, in calls of `of_host` since `begin`

    def begin(self) -> None:
        """Resets `unmeasured`. Call it before `of_host` is called for every host."""
        self.unmeasured = 0

    def of_host(self, host: int, here: Mapping[int, int]) -> int:
        """Private bytes of all processes of a host, including planned ones that have not started. Host 0 also has the
        supervisor and its fork server, another machine its agent and the agent's fork server."""
        run = self._run
        live = {record.process.name: record for record in run.fleet if record.is_live}
        planned = {f"{spec.role}-{spec.index}": spec for spec in run.plan.processes}
        total = sum(here.get(pid, 0) for pid in (run.supervisor_pid, run.launcher.server_pid)) if host == 0 else 0
        total += run.machines.own_private_bytes(host) if run.machines is not None else 0
        for name in live.keys() | planned.keys():
            record = live.get(name)
            if (record.spec if record is not None else planned[name]).host == host:
                measured = self.of(record, here) if record is not None else None
                total += EXPECTED_BYTES if measured is None else measured
                self.unmeasured += measured is None
        return total

    def mean_of(self, records: Sequence[ProcessRecord], here: Mapping[int, int]) -> int:
        """Mean private bytes of these processes; 0 without any."""
        return sum(self.of(one, here) or EXPECTED_BYTES for one in records) // len(records) if records else 0

    def of(self, record: ProcessRecord, here: Mapping[int, int]) -> int | None:
        """Private bytes of a process; None: it is not measured yet."""
        if self._run.machines is not None and record.spec.host in self._run.elsewhere:
            usage = self._run.machines.usage(record.spec.host, record.process)
            return (usage.private_bytes or None) if usage is not None else None
        return here.get(record.pid)
