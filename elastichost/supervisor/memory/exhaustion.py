"""Decides what happens when a PS requests memory and none is left: new ids get no row, or the job ends.

A process counts with an expected size until it is measured. So neither happens before all processes are measured, for
at most MEASURED_S.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elastichost.arena.files import MORE_ROOM
from elastichost.arena.memory_board import MemoryBoard
from elastichost.errors import ElastichostError, MemoryBudgetError
from elastichost.human_readable import mib
from elastichost.runs.events import MemoryFreed, MemoryFull
from elastichost.specs import TableSpec
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.memory.actions import total_of
from elastichost.supervisor.memory.gauge import RowCosts
from elastichost.supervisor.memory.grants import HostFacts

__all__ = ["FULL_S", "MEASURED_S", "Shortage", "budget_error"]

# The job ends when a request could not be granted for FULL_S, or for BUSY_S while an action may free memory.
FULL_S, BUSY_S = 0.3, 60.0
# Ids get rows again when no request was refused for FREE_S. This time doubles when memory is full again within
# MOST_FREE_S, up to MOST_FREE_S.
FREE_S, MOST_FREE_S = 1.0, 30.0
MEASURED_S = 10.0  # longest wait for the measurement of all processes


class Shortage:
    """Reacts to hosts without free memory. boards: of the arenas of all hosts. may_leave_out: new ids may go without a
    row instead of ending the job. error_of: returns the error that ends the job, for the host that is full."""

    def __init__(
        self,
        run: RunContext,
        boards: Sequence[MemoryBoard],
        error_of: Callable[[HostFacts], ElastichostError],
        *,
        may_leave_out: bool,
    ) -> None:
        self._run, self._boards, self._error_of = run, boards, error_of
        self._may_leave_out = may_leave_out
        self._full_s: float | None = None  # since when requests cannot be granted; None: all can
        self._refused_s = 0.0
        self._freed_s: float | None = None
        self._free_s = FREE_S
        self._left_out_before: int | None = None  # at the start of leaving out; None: ids get rows
        for board in boards:  # a supervisor that died may have set this
            board.leave_out(is_full=False)

    @property
    def left_out(self) -> int:
        """Number of lookups that found no row, because memory was full, since the arenas were made."""
        return total_of(self._boards, "left_out")

    def look(self, facts: Sequence[HostFacts], now_s: float, *, is_measured: bool, is_busy: bool) -> None:
        """Checks whether all requests could be granted. Call it after every grant. is_measured: all processes are
        measured. is_busy: an action or a hand-over is under way that may free memory. Raises the error of `error_of`.
        """
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
        for board in self._boards:  # a host may have joined since the other boards were told
            board.leave_out(is_full=True)
        if self._left_out_before is not None:
            return
        was_too_soon = self._freed_s is not None and now_s - self._freed_s < MOST_FREE_S
        self._free_s = min(2 * self._free_s, MOST_FREE_S) if was_too_soon else FREE_S
        self._left_out_before = self.left_out
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
        f"the file system of the arena is full: the arena takes {mib(fact.reading.used_bytes)} of it, "
        f"{mib(fact.files_free_bytes)} are free"
    )


def budget_error(
    fact: HostFacts, tables: Sequence[TableSpec], costs: RowCosts, *, acts: bool, names_host: bool
) -> MemoryBudgetError:
    """The error for a host that is full. Its message has the budget, its parts, and the largest dynamic tables.

    acts: tuner.memory is "act" already, so the hint does not suggest it. names_host: the run has several hosts.
    """
    reading = fact.reading
    sizes = reading.live * costs.all
    largest = sorted((t for t in tables if t.is_dynamic), key=lambda t: -float(sizes[t.index]))[:5]
    grown = ", ".join(f"{t.name!r} {int(reading.live[t.index]):,} rows, {mib(float(sizes[t.index]))}" for t in largest)
    where = f"host {fact.host}: " if names_host else ""
    names = " and ".join(f"tables.{table.name}" for table in largest[:2])
    if fact.is_files:
        return MemoryBudgetError(f"{where}{_files_words(fact)}; the tables that grew: {grown}", hint=MORE_ROOM)
    return MemoryBudgetError(
        f"{where}resources.memory allows {mib(fact.budget_bytes)}, but the dynamic tables need more: the arena "
        f"takes {mib(reading.used_bytes)}, private memory of the processes {mib(fact.private_bytes)}, "
        f"copies for checkpoints {mib(fact.copies_bytes)}; the tables that grew, with their copies and their largest "
        f"indexes: {grown}",
        hint=f"raise resources.memory; or set evict_after_samples or admit_after of {names}"
        + ("" if acts else '; or tuner.memory = "act"'),
    )
