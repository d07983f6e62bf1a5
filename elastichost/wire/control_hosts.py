"""The part of the control conversation about hosts: buckets that go from one to another, and who is let in there."""

from __future__ import annotations

from elastichost.wire.facts import BucketMove, Count, Message

__all__ = [
    "AdmitMsg",
    "AdmittedMsg",
    "BucketsMeasuredMsg",
    "CopiedMsg",
    "CopyBucketsMsg",
    "ForgetBucketsMsg",
    "ForgottenMsg",
    "KeepBucketsMsg",
    "MeasureBucketsMsg",
    "UnmappedMsg",
]

# --- process -> supervisor -----------------------------------------------------------------------------


class BucketsMeasuredMsg(Message, frozen=True):
    """PS: what each of the buckets it was asked for takes now, in the order of the question."""

    request: Count
    bytes: tuple[Count, ...]


class CopiedMsg(Message, frozen=True):
    """PS: all buckets of CopyBucketsMsg are copied but for rows that change all the time, `bytes` of them. With
    `failure` it cannot hold them, and says why. is_full: there is no memory for them."""

    copy: Count
    bytes: Count
    failure: str = ""
    is_full: bool = False


class ForgottenMsg(Message, frozen=True):
    """PS: its arena holds nothing of the buckets of ForgetBucketsMsg any more."""

    request: Count


class UnmappedMsg(Message, frozen=True):
    """Worker with mixed access: it uses no row in place any more by a shard map older than this one."""

    shard_map_epoch: Count


class AdmittedMsg(Message, frozen=True):
    """PS: whoever was named by AdmitMsg of this number, and before it, is let in."""

    number: Count


# --- supervisor -> process -----------------------------------------------------------------------------


class MeasureBucketsMsg(Message, frozen=True):
    """PS: how many bytes do these buckets of yours take? The answer is BucketsMeasuredMsg."""

    request: int
    buckets: tuple[tuple[int, int], ...]  # (table, bucket)


class CopyBucketsMsg(Message, frozen=True):
    """PS: fetch these buckets from the PS that have them, into your arena; they are not yours yet. Answer CopiedMsg.
    What is being copied already from the very same incarnations goes on; `copy` only grows."""

    copy: int
    moves: tuple[BucketMove, ...]


class ForgetBucketsMsg(Message, frozen=True):
    """PS: these buckets are another's now (or were not to come after all): free their memory, answer ForgottenMsg."""

    request: int
    buckets: tuple[tuple[int, int], ...]  # (table, bucket)


class KeepBucketsMsg(Message, frozen=True):
    """PS: nobody copies these buckets of yours any more."""

    buckets: tuple[tuple[int, int], ...]  # (table, bucket)


class AdmitMsg(Message, frozen=True):
    """PS that other machines reach: these incarnations and nobody else may come in. The answer is AdmittedMsg. Numbers
    only grow."""

    number: int
    keys: tuple[tuple[str, str], ...]  # (public key, incarnation: `worker-0.1`)
