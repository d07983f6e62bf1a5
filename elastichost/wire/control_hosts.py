"""Messages of the control conversation that concern several hosts: the migration of buckets from one host to another,
and the admission of processes of other machines. `wire.control` explains the docstrings."""

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
    """From a PS, as the answer to MeasureBucketsMsg: the present size of each bucket."""

    request: Count
    bytes: tuple[Count, ...]  # in the order of `buckets` in the request


class CopiedMsg(Message, frozen=True):
    """From a PS: it has copied all buckets of CopyBucketsMsg, `bytes` bytes, except the rows that change all the time.
    With `failure` it cannot store them, and `failure` is the reason. is_full: the reason is that memory is short."""

    copy: Count
    bytes: Count
    failure: str = ""
    is_full: bool = False


class ForgottenMsg(Message, frozen=True):
    """From a PS, as the answer to ForgetBucketsMsg: its arena holds none of these buckets any more."""

    request: Count


class UnmappedMsg(Message, frozen=True):
    """From a worker with mixed access: it uses no row in place any more by a shard map that is older than this one."""

    shard_map_epoch: Count


class AdmittedMsg(Message, frozen=True):
    """From a PS, as the answer to AdmitMsg: its gate admits the incarnations of the AdmitMsg with this number."""

    number: Count


# --- supervisor -> process -----------------------------------------------------------------------------


class MeasureBucketsMsg(Message, frozen=True):
    """To a PS: measure the size of these buckets of yours, and answer with BucketsMeasuredMsg."""

    request: int
    buckets: tuple[tuple[int, int], ...]  # (table, bucket)


class CopyBucketsMsg(Message, frozen=True):
    """To a PS: copy these buckets from their present owners into your arena, and answer with CopiedMsg. You do not own
    them yet. A copy that is already under way from the same incarnation of an owner continues."""

    copy: int  # number of the order; numbers only grow
    moves: tuple[BucketMove, ...]


class ForgetBucketsMsg(Message, frozen=True):
    """To a PS: free the memory of these buckets, because they belong to another PS now or their copy was cancelled, and
    answer with ForgottenMsg."""

    request: int
    buckets: tuple[tuple[int, int], ...]  # (table, bucket)


class KeepBucketsMsg(Message, frozen=True):
    """To the owner of buckets whose copy was cancelled: stop noting which of their rows change."""

    buckets: tuple[tuple[int, int], ...]  # (table, bucket)


class AdmitMsg(Message, frozen=True):
    """To a PS with a gate: admit these incarnations and no others, and answer with AdmittedMsg. Numbers only grow."""

    number: int
    keys: tuple[tuple[str, str], ...]  # (public key, incarnation: `worker-0.1`)
