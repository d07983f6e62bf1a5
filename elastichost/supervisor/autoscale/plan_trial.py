"""A change that the tuner made, until it is done: when a newcomer of it dies before it works, the plan before it comes
back; so it does when buckets find no memory where they should go. Nobody asked for that plan: that it cannot be had (no
memory, no room on a GPU) must not end a run that trained well without it. No I/O.
"""

from __future__ import annotations

import msgspec

from elastichost.plan import Plan, ProcessSpec
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.supervisor.core.lifecycle import State

__all__ = ["Change", "begun", "failed_newcomer", "without", "without_room"]


class Change(msgspec.Struct, frozen=True):
    """incarnations: of every process that the plan before did not have, the newest incarnation of its name at that
    time."""

    before: Plan
    after: Plan
    incarnations: dict[str, int]
    began_s: float = 0.0

    @property
    def more_servers(self) -> bool:
        return len(self.after.servers) > len(self.before.servers)


def begun(before: Plan, after: Plan, fleet: Fleet, now_s: float) -> Change:
    known = {_name(spec) for spec in before.processes}
    incarnations = {}
    for spec in after.processes:
        if _name(spec) not in known:
            record = fleet.named(spec.role, spec.index)
            incarnations[_name(spec)] = record.process.incarnation if record is not None else 0
    return Change(before, after, incarnations, now_s)


def failed_newcomer(change: Change, fleet: Fleet) -> ProcessRecord | None:
    """One that has ended otherwise than asked. Call it as long as the change is not done."""
    for spec in change.after.processes:
        record = fleet.named(spec.role, spec.index)
        incarnation = change.incarnations.get(_name(spec))
        if (
            record is not None
            and incarnation is not None
            and record.process.incarnation > incarnation
            and record.state == State.FAILED
        ):
            return record
    return None


def without(change: Change, failed: ProcessRecord) -> Plan:
    """The plan before, and why."""
    cause = failed.failure.message if failed.failure is not None else "see its log"
    return msgspec.structs.replace(
        change.before, reason=f"{failed.process} ended before it worked ({cause}): the plan before comes back"
    )


def without_room(change: Change, wait_s: float) -> Plan:
    """The plan before, because rows could not go to where the newer one wanted them. wait_s: until that may be tried
    again."""
    why = (
        "memory was full where buckets should have gone: the plan before comes back, and "
        f"{len(change.after.servers)} PS are left alone for {wait_s:.0f} s"
    )
    return msgspec.structs.replace(change.before, reason=why)


def _name(spec: ProcessSpec) -> str:
    return f"{spec.role}-{spec.index}"
