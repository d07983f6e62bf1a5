"""What becomes of a job when a PS wants memory that is not there: new ids go without a row, or the job is ended.

Before either, processes that were just started are measured: until then they count as what is expected of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elastichost.arena.files import MORE_ROOM
from elastichost.arena.memory_board import MemoryBoard
from elastichost.errors import ElastichostError, MemoryBudgetError
from elastichost.runs.events import MemoryFreed, MemoryFull
from elastichost.specs import TableSpec
from elastichost.supervisor.context import Run
from elastichost.supervisor.memory.actions import total_of
from elastichost.supervisor.memory.gauge import RowCosts
from elastichost.supervisor.memory.grants import HostFacts

__all__ = ["FULL_S", "MEASURED_S", "Shortage", "budget_error"]

FULL_S, BUSY_S = 0.3, 60.0  # a job is ended when nothing could be granted for so long; while something is being done
# Ids get rows again when nothing was refused for so long; twice as long each time when that was too soon.
FREE_S, MOST_FREE_S = 1.0, 30.0
MEASURED_S = 10.0  # processes are measured for so long at most


class Shortage:
    """boards: of the arenas of all hosts. may_leave_out: ids may go without a row, so that the job need not end;
    error_of: what it ends with, given the host that is full."""

    def __init__(
        self,
        run: Run,
        boards: Sequence[MemoryBoard],
        error_of: Callable[[HostFacts], ElastichostError],
        *,
        may_leave_out: bool,
    ) -> None:
        self._run, self._boards, self._error_of = run, boards, error_of
        self._may_leave_out = may_leave_out
        self._full_s: float | None = None  # since when nothing can be granted
        self._refused_s = 0.0
        self._freed_s: float | None = None
        self._free_s = FREE_S
        self._left_out_before: int | None = None  # None: no ids are left out
        for board in boards:  # a supervisor that died may have had them left out
            board.leave_out(is_full=False)

    @property
    def left_out(self) -> int:
        """Sightings of ids that went without a row."""
        return total_of(self._boards, "left_out")

    def look(self, facts: Sequence[HostFacts], now_s: float, *, is_measured: bool, is_busy: bool) -> None:
        """Call it after every grant. is_measured: all processes are; is_busy: what is under way may free something.
        Raises the error."""
        full = [fact for fact in facts if fact.shares.is_full]
        if not full:
            if self._full_s is not None and now_s - self._refused_s >= self._free_s:
                self._full_s = None
                self._go_on(now_s)
            return
        self._refused_s = now_s
        if self._full_s is None:
            self._full_s = now_s
        lasted_s = now_s - self._full_s
        if not is_measured and lasted_s < MEASURED_S:
            return
        if self._may_leave_out:
            self._leave_out(full[0], now_s)
        elif lasted_s >= (BUSY_S if is_busy else FULL_S):
            raise self._error_of(full[0])

    def _leave_out(self, fact: HostFacts, now_s: float) -> None:
        if self._left_out_before is not None:
            return
        was_too_soon = self._freed_s is not None and now_s - self._freed_s < MOST_FREE_S
        self._free_s = min(2 * self._free_s, MOST_FREE_S) if was_too_soon else FREE_S
        self._left_out_before = self.left_out
        for board in self._boards:
            board.leave_out(is_full=True)
        self._run.note(
            MemoryFull(
                host=fact.host,
                budget_bytes=fact.budget_bytes,
                used_bytes=fact.reading.used_bytes,
                private_bytes=fact.private_bytes,
                files_free_bytes=fact.files_free_bytes,
                is_files=fact.is_files,
                repair=MORE_ROOM if fact.is_files else "",
            )
        )

    def _go_on(self, now_s: float) -> None:
        if self._left_out_before is None:
            return
        for board in self._boards:
            board.leave_out(is_full=False)
        ids = self.left_out - self._left_out_before
        self._left_out_before, self._freed_s = None, now_s
        self._run.note(MemoryFreed(ids))


def _files_words(fact: HostFacts) -> str:
    return (
        f"the file system of the arena is full: rows and all that belongs to them take "
        f"{fact.reading.used_bytes / 1e6:,.1f} MB of it, {fact.files_free_bytes / 1e6:,.1f} MB are free"
    )


def budget_error(
    fact: HostFacts, tables: Sequence[TableSpec], costs: RowCosts, *, acts: bool, names_host: bool
) -> MemoryBudgetError:
    """Names the budget, what takes it, and the tables that have grown. acts: rows are dropped where that helps."""

    def mb(size_bytes: float) -> str:
        return f"{size_bytes / 1e6:,.1f}"

    reading = fact.reading
    sizes = reading.live * costs.all
    largest = sorted((t for t in tables if t.is_dynamic), key=lambda t: -float(sizes[t.index]))[:5]
    grown = ", ".join(
        f"{t.name!r} {int(reading.live[t.index]):,} rows, {mb(float(sizes[t.index]))} MB" for t in largest
    )
    where = f"host {fact.host}: " if names_host else ""
    names = ", ".join(table.name for table in largest[:2])
    if fact.is_files:
        return MemoryBudgetError(f"{where}{_files_words(fact)}; the tables that grew: {grown}", hint=MORE_ROOM)
    return MemoryBudgetError(
        f"{where}resources.memory allows {mb(fact.budget_bytes)} MB, and the dynamic tables need more: rows and "
        f"all that belongs to them take {mb(reading.used_bytes)} MB, private memory of the processes "
        f"{mb(fact.private_bytes)} MB, copies for checkpoints {mb(fact.copies_bytes)} MB; the tables that grew, "
        f"copies and indexes at their peak included: {grown}",
        hint=f"raise resources.memory; or set tables.{names}.evict_after_samples or admit_after"
        + ("" if acts else '; or tuner.memory = "act"'),
    )
