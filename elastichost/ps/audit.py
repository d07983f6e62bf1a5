"""Audit of hand-overs, for tests and `elastichost chaos`: with ELASTICHOST_AUDIT=1 a PS writes a hash of every bucket
it lets go and takes over into its log, one JSON line each, behind the word `audit`.

With served access nobody may write to a bucket between the two: the hashes are equal, bit for bit (promise B). With
direct access workers go on updating rows meanwhile, and the hashes say nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.wire.applied import AUDIT_VARIABLE, is_audited

__all__ = ["AUDIT_VARIABLE", "AUDIT_WORD", "Audit", "AuditLine"]

AUDIT_WORD = "audit "

Array = npt.NDArray[Any]
ReadBucket = Callable[[int, int, Callable[[Array], Array]], Iterable[tuple[str, int, Array]]]


class AuditLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One bucket of one table, at the moment of `event` under a shard map of `epoch`. `blocks`: hash of each of its
    blocks (rows and optimizer state of every embedding, ids and counts of a dynamic table) by kind and owner.
    `supervisor`: its pid; the epochs of another one begin anew."""

    event: Literal["released", "adopted"]
    supervisor: int
    epoch: int
    table: int
    bucket: int
    blocks: dict[str, str]


class Audit:
    """read: a PS' own buckets, as `RowStore.snapshot_bucket`; supervisor: its pid. Does nothing unless the
    variable is set to 1."""

    def __init__(self, read: ReadBucket, supervisor: int, environ: Mapping[str, str] = os.environ) -> None:
        self._read, self._supervisor = read, supervisor
        self._is_on = is_audited(environ)

    def note(self, event: Literal["released", "adopted"], epoch: int, buckets: Iterable[tuple[int, int]]) -> None:
        """Call just before buckets are let go, and just after they were taken over."""
        if not self._is_on:
            return
        for table, bucket in buckets:
            blocks = {f"{kind} {owner}": _hash(array) for kind, owner, array in self._read(table, bucket, _as_it_is)}
            line = AuditLine(event, self._supervisor, epoch, table, bucket, blocks)
            print(f"{AUDIT_WORD}{msgspec.json.encode(line).decode()}", flush=True)


def _as_it_is(array: Array) -> Array:
    return array


def _hash(array: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).hexdigest()
