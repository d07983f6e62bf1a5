"""The views of all jobs at one decision. They are made when the first of them is read, because many policies look only
at the jobs that wait, and thousands of others have new measurements at each decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.blocks.block_log import BlockHistory, BlockLog
from benchmarks.simulator.cluster.views import JobSequence, JobView

__all__ = ["JobViews"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keep = Callable[[JobView, JobView], None]  # earlier view, new view


class JobViews(JobSequence):
    """The views of all jobs, in order of arrival, as of one time; what happens later does not appear in them."""

    __slots__ = ("_all", "_columns", "_earlier", "_keep", "_logs", "_waiting")

    def __init__(
        self,
        earlier: Sequence[tuple[JobView, BlockLog]],
        columns: tuple[Floats, Floats, Integers],
        waiting: tuple[JobView, ...],
        keep: Keep,
    ) -> None:
        """earlier: the last view of each job that was made, and its log. columns: times at which the present views are
        seen, samples left, numbers of blocks, each [jobs]. waiting: views of the jobs that wait. keep: is called with
        each view that is made."""
        self._earlier, self._columns, self._waiting, self._keep = earlier, columns, waiting, keep
        self._all: tuple[JobView, ...] | None = None

    @property
    def waiting(self) -> Sequence[JobView]:
        return self._waiting

    def __len__(self) -> int:
        return len(self._earlier)

    def __iter__(self) -> Iterator[JobView]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> JobView: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JobView]: ...

    def __getitem__(self, index: int | slice) -> JobView | Sequence[JobView]:
        return self._made()[index]

    def _made(self) -> tuple[JobView, ...]:
        if self._all is None:
            seen_s, left, counts = (one.tolist() for one in self._columns)
            found = []
            for (old, log), at_s, rest, count in zip(self._earlier, seen_s, left, counts, strict=True):
                if old.seen_s == at_s:
                    found.append(old)
                    continue
                view = JobView(
                    old.facts,
                    BlockHistory(log, count),
                    old.running,
                    old.granted_memory_bytes,
                    old.started_s,
                    at_s,
                    rest,
                    old.is_changing,
                    old.ooms,
                    old.restarts,
                )
                found.append(view)
                self._keep(old, view)
            self._all = tuple(found)
        return self._all
