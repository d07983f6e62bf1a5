"""Row pushes of served access: staged when they come, applied when their batch is committed, each exactly once.

A kill at any instant leaves every push staged or applied, never half of it: see `arena.staging` and `arena.undo`.
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
    """The waiting pushes of one PS. Opening it takes back what its predecessor was killed in."""

    def __init__(
        self, directory: Path, server: int, tables: int, lines: RowLines, allowance: Allowance = UNLIMITED
    ) -> None:
        self._staged = StagingArea(directory, server, tables, allowance)
        self._undo = UndoRecord(directory, server, tables, allowance)
        self._lines = lines
        self._over = 0  # sync mode: steps up to here are settled, also those that had no rows here
        self._left_out: dict[int, tuple[int, int]] = {}  # micro-batch -> (step, shard map epoch) that it is left out of
        self.on_changed: Callable[[Int64, Int64], None] | None = None  # called with rows that were updated, and bounds
        self.took_back = self._recover()

    def _recover(self) -> bool:
        """Whether rows were put back."""
        old = self._undo.unfinished()
        if old is not None:
            self._lines.put_back(old.rows, old.bounds, old.lines, old.states)
            self._undo.taken_back()
        for stager in self._staged.waiting():
            if self._staged.stamp(stager) <= self._undo.applied(stager):
                self._staged.drop(stager)
        applied = [self._undo.applied(stager) for stager in range(MAX_STAGERS)]
        # Who staged for a step knew that the one before was committed, and settled it here.
        applied += [self._staged.stamp(stager) - 1 for stager in self._staged.waiting()]
        self._over = max((stamp for stamp in applied if stamp_incarnation(stamp) == 0), default=0)
        return old is not None

    # --- what waits -----------------------------------------------------------------------------------------

    def waiting(self) -> tuple[tuple[int, int, int], ...]:
        """(worker, incarnation, sequence) of every push that waits for its commit. In sync mode (micro-batch, 0,
        step)."""
        return tuple(
            (stager, stamp_incarnation(stamp), stamp_sequence(stamp))
            for stager in self._staged.waiting()
            if (stamp := self._staged.stamp(stager))
        )

    def incarnation_waiting(self, worker: int) -> int:
        """The incarnation whose push waits; 0: none does."""
        return stamp_incarnation(self._staged.stamp(worker))

    def knows(self, worker: int, incarnation: int, sequence: int, shard_map_epoch: int) -> bool:
        """Whether this very push waits already, or was applied."""
        stamp = stamp_of(incarnation, sequence)
        if stamp <= self._undo.applied(worker):
            return True
        return self._staged.stamp(worker) == stamp and self._staged.shard_map_epoch(worker) == shard_map_epoch

    # --- what is done ---------------------------------------------------------------------------------------

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
        """Keeps a push until `settle`. The same batch cut by a newer shard map takes the place of the older cut.

        rows int64 [n], distinct within a table; gradients float32, their lines. Raises ProtocolError when another batch
        of the worker waits, for rows that do not exist and for lines too few or too many; ArenaFullError.
        """
        waiting, stamp = self._staged.stamp(worker), stamp_of(incarnation, sequence)
        if waiting not in (0, stamp):
            raise ProtocolError(
                f"worker-{worker}.{incarnation} pushes rows of batch {sequence} while those of batch "
                f"{stamp_sequence(waiting)} (incarnation {stamp_incarnation(waiting)}) wait to be committed"
            )
        self._lines.check(rows, bounds, len(gradients))
        self._staged.write(worker, stamp, shard_map_epoch, learning_rate_scale, rows, bounds, gradients)
        crash_point("ps.push.staged")

    def settle(self, worker: int, incarnation: int, committed: int, *, is_over: bool = False) -> None:
        """This incarnation's batches up to `committed` are committed: applies its waiting push if it is one of them.
        With `is_over` the incarnation commits no more: another one is dropped. A push of another incarnation is left
        alone."""
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
        """Everybody who staged here is dead: what of it `committed` counts is applied, the rest dropped."""
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
        """All of it, or after a kill none."""
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
        """Its rows are updated here: nobody can compute it any more."""
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
        """Keeps a micro-batch's rows until its step is committed; one of a step that is over is ignored, and so is one
        that waits already. Without rows it is left out: what waits of it is dropped, and what may still come under this
        shard map is ignored. All steps before are committed. Raises as `stage`."""
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
        """Steps up to `committed` are committed: applies what waits of them. With `is_over` whatever else waits is
        dropped: it will be computed again."""
        if committed > self._over or is_over:
            waiting = self._staged.waiting()
            self._apply_micros([m for m in waiting if self._staged.stamp(m) <= committed])
            if is_over:
                for micro in self._staged.waiting():
                    self._staged.drop(micro)
        self._over = max(self._over, committed)

    def _apply_micros(self, micros: Sequence[int]) -> None:
        """One update with the sum of their gradients, in the order of the micro-batches."""
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
    """Distinct rows of all pushes, table after table; their bounds; and where each push's rows stand among them."""
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
