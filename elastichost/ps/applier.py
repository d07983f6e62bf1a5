"""Row pushes of served access: staged when they come, applied when their batch is committed, each exactly once.

A kill at any instant leaves every push staged or applied, never half of it: see `arena.staging` and `arena.undo`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.staging import StagedPush, StagingArea, stamp_life, stamp_of, stamp_sequence
from elastichost.arena.undo import UndoRecord
from elastichost.errors import ProtocolError
from elastichost.ps.row_lines import RowLines
from elastichost.wire.crash import crash_point

__all__ = ["RowApplier"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


class RowApplier:
    """The waiting pushes of one PS. Opening it takes back what its predecessor was killed in."""

    def __init__(self, directory: Path, server: int, tables: int, lines: RowLines) -> None:
        self._staged = StagingArea(directory, server, tables)
        self._undo = UndoRecord(directory, server, tables)
        self._lines = lines
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
        return old is not None

    # --- what waits -----------------------------------------------------------------------------------------

    def waiting(self) -> tuple[tuple[int, int, int], ...]:
        """(worker, life, sequence) of every push that waits for its commit."""
        return tuple(
            (stager, stamp_life(stamp), stamp_sequence(stamp))
            for stager in self._staged.waiting()
            if (stamp := self._staged.stamp(stager))
        )

    def life_waiting(self, worker: int) -> int:
        """The life whose push waits; 0: none does."""
        return stamp_life(self._staged.stamp(worker))

    def knows(self, worker: int, life: int, sequence: int, shard_map_epoch: int) -> bool:
        """Whether this very push waits already, or was applied."""
        stamp = stamp_of(life, sequence)
        if stamp <= self._undo.applied(worker):
            return True
        return self._staged.stamp(worker) == stamp and self._staged.shard_map_epoch(worker) == shard_map_epoch

    # --- what is done ---------------------------------------------------------------------------------------

    def stage(
        self,
        worker: int,
        life: int,
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
        waiting, stamp = self._staged.stamp(worker), stamp_of(life, sequence)
        if waiting not in (0, stamp):
            raise ProtocolError(
                f"worker-{worker}.{life} pushes rows of batch {sequence} while those of batch "
                f"{stamp_sequence(waiting)} (life {stamp_life(waiting)}) wait to be committed"
            )
        self._lines.check(rows, bounds, len(gradients))
        self._staged.write(worker, stamp, shard_map_epoch, learning_rate_scale, rows, bounds, gradients)
        crash_point("ps.push.staged")

    def settle(self, worker: int, life: int, committed: int, *, is_over: bool = False) -> None:
        """This life's batches up to `committed` are committed: applies its waiting push if it is one of them. With
        `is_over` the life commits no more: another one is dropped. A push of another life is left alone."""
        stamp = self._staged.stamp(worker)
        if stamp == 0 or stamp_life(stamp) != life:
            return
        if stamp_sequence(stamp) <= committed:
            staged = self._staged.read(worker)
            assert staged is not None
            self._apply(staged)
        elif is_over:
            self._staged.drop(worker)

    def _apply(self, push: StagedPush) -> None:
        """All of it, or after a kill none."""
        crash_point("ps.apply.before_undo")
        lines, states = self._lines.sizes(push.bounds)
        old = self._undo.begin(((push.stager, push.stamp),), push.rows, push.bounds, lines, states)
        self._lines.save(old.rows, old.bounds, old.lines, old.states)
        self._undo.activate()
        self._lines.update(push.rows, push.bounds, push.gradients, push.learning_rate_scale)
        crash_point("ps.apply.before_finish")
        self._undo.finish()
        self._staged.drop(push.stager)

    def close(self) -> None:
        self._staged.close()
        self._undo.close()
