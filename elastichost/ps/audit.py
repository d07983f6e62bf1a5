"""Audit of hand-overs, for tests and `elastichost chaos`: hashes of buckets before and after they change owners.

With ELASTICHOST_AUDIT=1 a PS writes a hash of every bucket that it releases or adopts to its log: one JSON line each,
after the word `audit`. With served access no process may write to a bucket between the two, so the hashes must be equal
(promise B). With direct access workers go on updating rows meanwhile, so the hashes prove nothing.
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
    """One bucket of one table at the time of `event`, under the shard map of `epoch`.

    blocks: the hash of each block (rows and optimizer state of every embedding, ids and stamps of a dynamic table) by
    "kind owner". supervisor: its pid, because the epochs of another supervisor start again.
    """

    event: Literal["released", "adopted"]
    supervisor: int
    epoch: int
    table: int
    bucket: int
    blocks: dict[str, str]


class Audit:
    """Writes audit lines. read: reads a bucket that the PS owns, as `RowStore.snapshot_bucket` does; supervisor: its
    pid. Does nothing unless the variable is set to 1."""

    def __init__(self, read: ReadBucket, supervisor: int, environ: Mapping[str, str] = os.environ) -> None:
        self._read, self._supervisor = read, supervisor
        self._is_on = is_audited(environ)

    def note(self, event: Literal["released", "adopted"], epoch: int, buckets: Iterable[tuple[int, int]]) -> None:
        """Writes a line for each bucket. Call it just before buckets are released, and just after they are adopted."""
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
