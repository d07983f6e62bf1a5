"""Sums of records of committed batches, exact enough to account for every sample. Pure.

Adjacent ranges of positions are joined, so the fold grows with the number of units and workers, and not with time.
Overlapping ranges are not joined, so that a reader can see that a position was committed twice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.wire.applied import AppliedFold, AppliedRecords

__all__ = ["accounted_ranges", "fold_records", "joined_ranges"]

Int64 = npt.NDArray[np.int64]


def accounted_ranges(records: AppliedRecords) -> Int64:
    """The range (epoch, unit, start, stop) that each batch accounts for, int64 [n, 4]. It includes the positions of bad
    batches right before the batch, which are never committed."""
    columns = [records[name].astype(np.int64) for name in ("epoch", "unit", "start", "stop")]
    columns[2] = columns[3] - records["samples"].astype(np.int64) - records["skipped"].astype(np.int64)
    found: Int64 = np.stack(columns, axis=1)
    return found


def joined_ranges(ranges: Int64) -> Int64:
    """The ranges sorted, and adjacent ranges of a unit joined: int64 [m, 4]."""
    if not len(ranges):
        return ranges
    ordered = ranges[np.lexsort((ranges[:, 3], ranges[:, 2], ranges[:, 1], ranges[:, 0]))]
    same = (ordered[1:, :2] == ordered[:-1, :2]).all(axis=1) & (ordered[1:, 2] == ordered[:-1, 3])
    firsts = np.concatenate([[0], np.flatnonzero(~same) + 1])
    lasts = np.concatenate([firsts[1:] - 1, [len(ordered) - 1]])
    found: Int64 = np.concatenate([ordered[firsts, :3], ordered[lasts, 3:]], axis=1)
    return found


def fold_records(before: AppliedFold | None, first: int, records: AppliedRecords) -> AppliedFold:
    """Adds records to a fold. before: the fold of all earlier records, or None. first: number of the first record after
    `records`."""
    ranges = accounted_ranges(records)
    committed: dict[tuple[int, int], int] = {}
    samples = lease_id = 0
    left_out = records[records["left_out"].any(axis=1)].tobytes()
    if before is not None:
        ranges = np.concatenate([before.spans_array(), ranges])
        committed = {(worker, incarnation): sequence for worker, incarnation, sequence in before.committed}
        samples, lease_id, left_out = before.samples, before.lease_id, before.left_out + left_out
    newest = ranges[ranges[:, 0] == ranges[:, 0].max(initial=0)]
    keys = zip(records["worker"].tolist(), records["incarnation"].tolist(), records["sequence"].tolist(), strict=True)
    for worker, incarnation, sequence in keys:
        committed[worker, incarnation] = max(committed.get((worker, incarnation), 0), sequence)
    return AppliedFold(
        first=first,
        samples=samples + int(records["samples"].sum()),
        lease_id=max(lease_id, int(records["lease_id"].max(initial=0))),
        committed=tuple(
            (worker, incarnation, sequence) for (worker, incarnation), sequence in sorted(committed.items())
        ),
        spans=joined_ranges(newest).astype("<i8").tobytes(),
        left_out=left_out,
    )
