"""A plan change by the tuner, until it is done or taken back. No I/O.

Rules:
- The plan before comes back if a new process of the change fails, or if there is no memory where buckets must go.
- No user has requested the tuner's plan. So a plan that is not possible (no memory, no room on a GPU) must not end a
  run that trained well without it.
"""

from __future__ import annotations

import msgspec

from elastichost.plan import Plan, ProcessSpec
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.supervisor.core.lifecycle import State

__all__ = ["Change", "begun", "failed_newcomer", "without", "without_room"]


class Change(msgspec.Struct, frozen=True):
    """A change under way. incarnations: name -> newest incarnation when the change began (0: none), for each process
    that the plan before did not have."""

    before: Plan
    after: Plan
    incarnations: dict[str, int]
    began_s: float = 0.0

    @property
    def more_servers(self) -> bool:
        return len(self.after.servers) > len(self.before.servers)


def begun(before: Plan, after: Plan, fleet: Fleet, now_s: float) -> Change:
    """The change from `before` to `after`, which begins now."""
    known = {_name(spec) for spec in before.processes}
    incarnations = {}
    for spec in after.processes:
        if _name(spec) not in known:
            record = fleet.named(spec.role, spec.index)
            incarnations[_name(spec)] = record.process.incarnation if record is not None else 0
    return Change(before, after, incarnations, now_s)


def failed_newcomer(change: Change, fleet: Fleet) -> ProcessRecord | None:
    """A new process of the change that has failed; None: none has. Call it as long as the change is not done."""
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
    """The plan before the change, with the failed process as its reason."""
    cause = failed.failure.message if failed.failure is not None else "see its log"
    return msgspec.structs.replace(
        change.before,
        reason=f"{failed.process} ended before the change was done ({cause}): the previous plan comes back",
    )


def without_room(change: Change, wait_s: float) -> Plan:
    """The plan before the change, because the new plan needs buckets on a host without memory for them. wait_s: seconds
    until this number of PS may be tried again."""
    why = (
        "there is no memory where buckets had to go: the previous plan comes back, and "
        f"{len(change.after.servers)} PS are not tried again for {wait_s:.0f} s"
    )
    return msgspec.structs.replace(change.before, reason=why)


def _name(spec: ProcessSpec) -> str:
    return f"{spec.role}-{spec.index}"
