"""Sync mode: which micro-batch this worker computes next. Sans-IO.

The supervisor grants ranges of positions to the whole crew and says who computes which micro-batch; the dense owner
says which step is the first that is not committed. Micro-batches computed twice do no harm: the bits are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from elastichost.micro_batches import MicroBatch, micro_ranges, step_range, steps_of
from elastichost.wire.control import CrewMsg, StepsGrantMsg

__all__ = ["StepQueue"]


@dataclass(slots=True)
class StepQueue:
    """State of one worker. `step`: the first that is not committed, as far as this worker knows; 0: it must ask."""

    worker: int
    batch_size: int
    micros: int
    step: int = 0
    _grants: deque[StepsGrantMsg] = field(default_factory=deque)
    _crew: CrewMsg = field(default_factory=lambda: CrewMsg(epoch=0, workers=()))
    _done: set[int] = field(default_factory=set)  # micro-batches of the present step

    def grant(self, grant: StepsGrantMsg) -> None:
        """A further range; one that is known already is ignored."""
        if all(known.lease.lease_id != grant.lease.lease_id for known in self._grants):
            self._grants.append(grant)

    def crew(self, crew: CrewMsg) -> bool:
        """A newer crew; False for an old one."""
        if crew.epoch <= self._crew.epoch:
            return False
        self._crew = crew
        return True

    def reached(self, step: int) -> None:
        """The dense owner's answer. What was done of the present step stays done if that is still the one."""
        if step != self.step:
            self.step, self._done = step, set()
        while self._grants and self._stop(self._grants[0]) <= self.step:
            self._grants.popleft()

    def reopen(self) -> None:
        """The shard map has changed: what was staged under the older one may count no more. The dense owner must be
        asked again, and the step's micro-batches computed again."""
        self.step, self._done = 0, set()

    def pushed(self, task: MicroBatch) -> None:
        if task.step == self.step:
            self._done.add(task.micro)

    @property
    def has_grant(self) -> bool:
        """There is something to do once the present step is committed, if not before. A worker that has come late may
        know the positions of later steps only: those of the present one were committed meanwhile."""
        return any(self.step < self._stop(grant) for grant in self._grants)

    def due(self) -> MicroBatch | None:
        """The micro-batch of the present step to compute next; None: its own are all done, or nothing is known yet."""
        task = next(self.ahead(), None)
        return task if task is not None and task.step == self.step else None

    def ahead(self) -> Iterator[MicroBatch]:
        """Its own micro-batches that are not done, in order, as far as ranges are granted."""
        if self.step == 0:
            return
        for grant in self._grants:
            for step in range(max(self.step, grant.first_step), self._stop(grant)):
                yield from (
                    task
                    for task in self._of_step(grant, step)
                    if self._crew.workers[task.micro : task.micro + 1] == (self.worker,)
                    and not (step == self.step and task.micro in self._done)
                )

    def _stop(self, grant: StepsGrantMsg) -> int:
        return grant.first_step + steps_of(grant.lease.start, grant.lease.stop, self.batch_size)

    def _of_step(self, grant: StepsGrantMsg, step: int) -> Iterator[MicroBatch]:
        lease = grant.lease
        first, last = step_range(lease.start, lease.stop, self.batch_size, step - grant.first_step)
        ranges = micro_ranges(first, last, self.micros)
        for micro, (start, stop) in enumerate(ranges):
            yield MicroBatch(
                step=step,
                micro=micro,
                micros=len(ranges),
                positions=last - first,
                lease_id=lease.lease_id,
                epoch=lease.epoch,
                unit=lease.unit,
                start=start,
                stop=stop,
                shuffle_seed=grant.shuffle_seed,
                is_left_out=(step, micro) in self._crew.left_out,
            )
