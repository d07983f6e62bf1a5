"""Rows that cannot be trained on: they are skipped and counted, or they end the job."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from elastichost.errors import DataError

__all__ = ["HOW_TO_SKIP", "BadRowLog"]

HOW_TO_SKIP = 'set data.bad_rows = "skip" to skip and count such rows'


class BadRowLog:
    """Collects the bad rows among `samples` rows while they are decoded.

    `mask`: bool [samples], True for bad rows. `first`: (lowest bad position, description of its fault), or None.
    `nans`: dense column -> number of its values that are NaN, and not null.
    """

    def __init__(self, samples: int) -> None:
        self.mask: npt.NDArray[np.bool_] = np.zeros(samples, dtype=np.bool_)
        self.first: tuple[int, str] | None = None
        self.nans: dict[str, int] = {}

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.mask))

    def add(self, bad: npt.NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """Marks rows as bad. `bad`: bool [samples]; `describe(position)`: the message for one of these rows.

        A row that is already bad keeps its first message, because later faults often follow from the first one.
        """
        positions = np.flatnonzero(bad & ~self.mask)
        if len(positions) == 0:
            return
        lowest = int(positions[0])
        if self.first is None or lowest < self.first[0]:
            self.first = (lowest, describe(lowest))
        self.mask |= bad

    def settle(self, *, skip: bool, how_to_skip: str = HOW_TO_SKIP) -> npt.NDArray[np.bool_] | None:
        """The mask of rows to skip; None when all rows are good. Raises DataError for bad rows unless `skip`; its hint
        says `how_to_skip` them."""
        if self.first is None:
            return None
        if skip:
            return self.mask
        others = self.count - 1
        more = f" (and {others:,} more bad rows in the same unit)" if others else ""
        raise DataError(f"{self.first[1]}{more}", hint=f"correct the data, or {how_to_skip}")
