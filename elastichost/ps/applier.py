"""Row pushes of served access: staged when they come, applied exactly once when their batch is committed.

Rules
1. A stager (a worker; in sync mode a micro-batch) has at most one push waiting on a PS. Its stamp is (incarnation,
   sequence); in sync mode (0, step). The stamps of a stager only grow.
2. A push changes no row before its batch is committed. The PS has that news as the dense owner itself, or receives it
   with RowsCommittedMsg, `committed` of the next push, the supervisor's SettleMsg, or a new shard map. In sync mode any
   pull or push for step s + 1 proves that step s is committed.
3. An application changes all its rows or, after a kill, none. The newest applied stamp of each stager is stored with
   it; a push with that stamp or an older one is never applied again.
4. The same batch cut by a newer shard map replaces the older cut, as long as it was not applied.

Theory of operation. Both files lie in the arena and outlive the process. For one push, in this order:

    staging: stamp := 0 -> rows, gradients written -> stamp stored (staged) -> acknowledged
    applying: old lines saved -> active := 1 -> rows change -> finished := 1 -> applied stamps stored -> active := 0
              -> staging stamp := 0

What a kill leaves, and what the successor's `_recover` does with it:
- before the stamp is stored: no push. The worker got no answer and sends it again;
- staged: the push waits. The worker's repeated push is recognised by its stamp;
- before `active`: no row has changed; the push waits;
- between `active` and `finished`: the old lines are put back; the push waits and is applied when its commit is known;
- after `finished`: the stamps are stored again, and the staged push is dropped because its stamp is applied.

In sync mode the waiting micro-batches of a step are summed row by row in the order of their numbers and applied as one
update, so the bits do not depend on the order of arrival. The record of left-out micro-batches is only in memory: after
a kill the shard map has a new epoch and the crew computes the step again. See `arena.recovery.staging` and
`arena.recovery.undo`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.memory_board import UNLIMITED, Allowance
from elastichost.arena.recovery.staging import (
    MAX_STAGERS,
    StagedPush,
    StagingArea,
    stamp_incarnation,
    stamp_of,
    stamp_sequence,
)
from elastichost.arena.recovery.undo import UndoRecord
from elastichost.errors import ProtocolError
from elastichost.micro_batches import CREW, CREW_INCARNATION
from elastichost.ps.rows.row_lines import RowLines
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import CommittedBatch

__all__ = ["RowApplier"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


class RowApplier:
    """The waiting pushes of one PS. Opening it completes or undoes the application in which its predecessor was killed.

    took_back: whether rows were put back when it was opened.
    """

    def __init__(
        self, directory: Path, server: int, tables: int, lines: RowLines, allowance: Allowance = UNLIMITED
    ) -> None:
        self._staged = StagingArea(directory, server, tables, allowance)
        self._undo = UndoRecord(directory, server, tables, allowance)
        self._lines = lines
        self._over = 0  # sync mode: all steps up to this one are settled here, also those that had no rows here
        self._left_out: dict[int, tuple[int, int]] = {}  # micro-batch -> (step, shard map epoch) without it
        self.on_changed: Callable[[Int64, Int64], None] | None = None  # called with the updated rows and their bounds
        self.took_back = self._recover()

    def _recover(self) -> bool:
        """Completes what the predecessor began. Returns whether rows were put back."""
        old = self._undo.unfinished()
        if old is not None:
            self._lines.put_back(old.rows, old.bounds, old.lines, old.states)
            self._undo.taken_back()
        for stager in self._staged.waiting():
            if self._staged.stamp(stager) <= self._undo.applied(stager):
                self._staged.drop(stager)
        applied = [self._undo.applied(stager) for stager in range(MAX_STAGERS)]
        # A push for step s was staged only after step s - 1 was settled here.
        applied += [self._staged.stamp(stager) - 1 for stager in self._staged.waiting()]
        self._over = max((stamp for stamp in applied if stamp_incarnation(stamp) == 0), default=0)
        return old is not None

    # --- waiting pushes -------------------------------------------------------------------------------------

    def waiting(self) -> tuple[tuple[int, int, int], ...]:
        """(worker, incarnation, sequence) of every push that waits for its commit; in sync mode (micro-batch, 0,
        step)."""
        return tuple(
            (stager, stamp_incarnation(stamp), stamp_sequence(stamp))
            for stager in self._staged.waiting()
            if (stamp := self._staged.stamp(stager))
        )

    def incarnation_waiting(self, worker: int) -> int:
        """The incarnation of the worker's waiting push; 0: none waits."""
        return stamp_incarnation(self._staged.stamp(worker))

    def knows(self, worker: int, incarnation: int, sequence: int, shard_map_epoch: int) -> bool:
        """Whether this push, cut by this shard map, waits already, or the batch was applied."""
        stamp = stamp_of(incarnation, sequence)
        if stamp <= self._undo.applied(worker):
            return True
        return self._staged.stamp(worker) == stamp and self._staged.shard_map_epoch(worker) == shard_map_epoch

    # --- staging and applying -------------------------------------------------------------------------------

    def stage(
        self,
        worker: int,
        incarnation: int,
        sequence: int,
        shard_map_epoch: int,
        learning_rate_scale: float,
        rows: Int64,
        bounds: Int64,
        gradients: Float32,
    ) -> None:
        """Stages a push until `settle`. The same batch cut by a newer shard map replaces the older cut.

        rows int64 [n], distinct within a table, table t has rows[bounds[t] : bounds[t + 1]]; gradients float32, their
        lines. Raises ProtocolError when another batch of the worker waits, for rows that do not exist, and for a wrong
        number of floats; ArenaFullError.
        """
        waiting, stamp = self._staged.stamp(worker), stamp_of(incarnation, sequence)
        if waiting not in (0, stamp):
            raise ProtocolError(
                f"worker-{worker}.{incarnation} pushes rows of batch {sequence} while the rows of batch "
                f"{stamp_sequence(waiting)} (incarnation {stamp_incarnation(waiting)}) wait for their commit"
            )
        self._lines.check(rows, bounds, len(gradients))
        self._staged.write(worker, stamp, shard_map_epoch, learning_rate_scale, rows, bounds, gradients)
        crash_point("ps.push.staged")

    def settle(self, worker: int, incarnation: int, committed: int, *, is_over: bool = False) -> None:
        """Settles the waiting push of this incarnation, whose batches up to `committed` are committed.

        A push of one of these batches is applied. A push of a later batch goes on waiting; with
        `is_over` it is dropped, because the incarnation will commit nothing more. A push of another incarnation is not
        changed.
        """
        stamp = self._staged.stamp(worker)
        if stamp == 0 or stamp_incarnation(stamp) != incarnation:
            return
        if stamp_sequence(stamp) <= committed:
            staged = self._staged.read(worker)
            assert staged is not None
            self._apply(staged)
        elif is_over:
            self._staged.drop(worker)

    def settle_left(self, committed: Iterable[CommittedBatch], *, is_sync: bool) -> None:
        """Settles all waiting pushes when all their workers are dead: applies those that `committed` contains, drops
        the others."""
        known = {(entry.worker, entry.incarnation): entry.sequence for entry in committed}
        if is_sync:
            self.settle_steps(known.get((CREW, CREW_INCARNATION), 0), is_over=True)
            return
        for worker, incarnation, _ in self.waiting():
            self.settle(worker, incarnation, known.get((worker, incarnation), 0), is_over=True)

    def _apply(self, push: StagedPush) -> None:
        self._change(
            ((push.stager, push.stamp),), push.rows, push.bounds, push.gradients, push.learning_rate_scale, None
        )
        self._staged.drop(push.stager)

    def _change(
        self,
        stamps: Sequence[tuple[int, int]],
        rows: Int64,
        bounds: Int64,
        gradients: Float32,
        learning_rate_scale: float,
        step: int | None,
    ) -> None:
        """Updates the rows under the undo record: all of them or, after a kill, none. stamps: (stager, stamp) that are
        applied by it."""
        crash_point("ps.apply.before_undo")
        old = self._undo.begin(stamps, rows, bounds, *self._lines.sizes(bounds))
        self._lines.save(old.rows, old.bounds, old.lines, old.states)
        self._undo.activate()
        self._lines.update(rows, bounds, gradients, learning_rate_scale, step)
        if self.on_changed is not None:
            self.on_changed(rows, bounds)
        crash_point("ps.apply.before_finish")
        self._undo.finish()

    # --- sync mode: micro-batches -----------------------------------------------------------------------------

    def step_is_over(self, step: int) -> bool:
        """Whether this step is settled here: its rows are updated, so no worker can compute it any more."""
        return step <= self._over

    def stage_micro(
        self,
        micro: int,
        step: int,
        shard_map_epoch: int,
        learning_rate_scale: float,
        rows: Int64,
        bounds: Int64,
        gradients: Float32,
    ) -> None:
        """Stages a micro-batch's rows until its step is committed. All steps before `step` are committed.

        A push of a step that is over, and one that waits already, is ignored. A push without rows leaves the
        micro-batch out: its waiting push is dropped, and later pushes of it under this shard map are ignored. Raises
        as `stage`.
        """
        self.settle_steps(step - 1)
        if step <= self._over or self._left_out.get(micro) == (step, shard_map_epoch):
            return
        if len(rows) == 0:
            self._left_out[micro] = step, shard_map_epoch
            self._staged.drop(micro)
            return
        waiting = self._staged.stamp(micro)
        if waiting == step and self._staged.shard_map_epoch(micro) == shard_map_epoch:
            return
        self._lines.check(rows, bounds, len(gradients))
        self._staged.write(micro, step, shard_map_epoch, learning_rate_scale, rows, bounds, gradients)
        crash_point("ps.push.staged")

    def settle_steps(self, committed: int, *, is_over: bool = False) -> None:
        """Applies the waiting micro-batches of steps up to `committed`, which are committed. With `is_over` all other
        waiting micro-batches are dropped: they will be computed again."""
        if committed > self._over or is_over:
            waiting = self._staged.waiting()
            self._apply_micros([m for m in waiting if self._staged.stamp(m) <= committed])
            if is_over:
                for micro in self._staged.waiting():
                    self._staged.drop(micro)
        self._over = max(self._over, committed)

    def _apply_micros(self, micros: Sequence[int]) -> None:
        """Applies these micro-batches as one update with the sum of their gradients, added in the order of `micros`."""
        pushes = [push for micro in micros if (push := self._staged.read(micro)) is not None]
        if not pushes:
            return
        rows, bounds, places = _merged(pushes)
        sums = np.zeros(self._lines.sizes(bounds)[0], np.float32)
        for push, where in zip(pushes, places, strict=True):
            self._lines.add(push.gradients, push.bounds, where, sums, bounds)
        stamps = [(push.stager, push.stamp) for push in pushes]
        self._change(stamps, rows, bounds, sums, pushes[0].learning_rate_scale, pushes[0].stamp)
        for push in pushes:
            self._staged.drop(push.stager)

    def close(self) -> None:
        self._staged.close()
        self._undo.close()


def _merged(pushes: Sequence[StagedPush]) -> tuple[Int64, Int64, list[Int64]]:
    """(the distinct rows of all pushes, table after table; their bounds; for each push the positions of its rows among
    them)."""
    tables = len(pushes[0].bounds) - 1
    rows, bounds = list[Int64](), np.zeros(tables + 1, np.int64)
    places = [np.empty(len(push.rows), np.int64) for push in pushes]
    for table in range(tables):
        parts = [push.rows[push.bounds[table] : push.bounds[table + 1]] for push in pushes]
        distinct, inverse = np.unique(np.concatenate(parts), return_inverse=True)
        rows.append(distinct)
        start = 0
        for push, place, part in zip(pushes, places, parts, strict=True):
            where = slice(int(push.bounds[table]), int(push.bounds[table + 1]))
            place[where] = inverse[start : start + len(part)] + bounds[table]
            start += len(part)
        bounds[table + 1] = bounds[table] + len(distinct)
    return np.concatenate(rows), bounds, places
