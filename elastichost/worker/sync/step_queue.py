"""Sync mode: decides which micro-batch this worker computes next. Sans-IO.

Inputs: the supervisor grants ranges of positions to the whole crew (StepsGrantMsg) and assigns each micro-batch number
to a worker (CrewMsg); the dense owner answers which step is the first that is not committed.

Rules
1. The worker computes micro-batches of the open step only, its own by the newest crew, in order, each once.
2. When the shard map changes, the open step is unknown (step 0) until the dense owner has answered again. All
   micro-batches of the step are then computed again, because parts staged under the older map may not count.
3. A granted range is dropped when all its steps are committed.

Two workers may compute the same micro-batch for a while, after a new crew: this does no harm, because the bits are the
same. A killed worker loses this state; its successor gets the grants and the crew from the supervisor.
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
    """The queue of one worker. step: the first step that is not committed, by the dense owner's last answer; 0: there
    is no valid answer, so it must be requested."""

    worker: int
    batch_size: int
    micros: int
    step: int = 0
    _grants: deque[StepsGrantMsg] = field(default_factory=deque)
    _crew: CrewMsg = field(default_factory=lambda: CrewMsg(epoch=0, workers=()))
    _done: set[int] = field(default_factory=set)  # numbers of the open step's micro-batches that were pushed

    def grant(self, grant: StepsGrantMsg) -> None:
        """Adds a granted range. A range with a known lease id is ignored."""
        if all(known.lease.lease_id != grant.lease.lease_id for known in self._grants):
            self._grants.append(grant)

    def crew(self, crew: CrewMsg) -> bool:
        """Takes a newer crew. False: the crew is not newer; nothing changes."""
        if crew.epoch <= self._crew.epoch:
            return False
        self._crew = crew
        return True

    def reached(self, step: int) -> None:
        """Takes the dense owner's answer: the first step that is not committed. For the same step as before, the record
        of pushed micro-batches is kept."""
        if step != self.step:
            self.step, self._done = step, set()
        while self._grants and self._stop(self._grants[0]) <= self.step:
            self._grants.popleft()

    def reopen(self) -> None:
        """The shard map has changed: parts that were staged under the older one may not count. The open step must be
        requested again, and its micro-batches are computed again."""
        self.step, self._done = 0, set()

    def pushed(self, task: MicroBatch) -> None:
        """Notes that a micro-batch of the open step was pushed."""
        if task.step == self.step:
            self._done.add(task.micro)

    @property
    def has_grant(self) -> bool:
        """Whether a granted range contains the open step or a later one, so that the worker waits for a commit and is
        not idle. A worker that joined late may have only ranges of later steps."""
        return any(self.step < self._stop(grant) for grant in self._grants)

    def due(self) -> MicroBatch | None:
        """The micro-batch of the open step to compute next; None: all its own are pushed, or the step is unknown."""
        task = next(self.ahead(), None)
        return task if task is not None and task.step == self.step else None

    def ahead(self) -> Iterator[MicroBatch]:
        """This worker's own micro-batches that are not pushed yet, in order, as far as ranges are granted."""
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
