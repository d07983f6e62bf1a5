"""Named crash points for tests: `ELASTICHOST_CRASH_AT=ps.data.before_reply:20` kills a process at that point.

The number is the passage of the point at which the process is killed; the default is 1. Several points are separated by
commas. Only the first incarnation of a process is killed, so that a test can observe the recovery by its successor.
`POINTS` lists all points. Other names are refused, in the variable and in the code.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["POINTS", "VARIABLE", "CrashPoint", "arm", "crash_point", "parse_setting"]

VARIABLE = "ELASTICHOST_CRASH_AT"


class CrashPoint(NamedTuple):
    """A point in the code at which a process can be killed. name: begins with the role of the process: worker,
    reader, ps or supervisor. meaning: the state of the process at that point."""

    name: str
    meaning: str

    @property
    def role(self) -> str:
        return self.name.partition(".")[0]


POINTS: tuple[CrashPoint, ...] = (
    CrashPoint("worker.batch.begin", "a worker has a prepared batch and has not begun it"),
    CrashPoint("worker.batch.before_push", "a batch is computed (direct: its rows are updated), nothing is sent yet"),
    CrashPoint("worker.batch.before_commit", "served: the rows of a batch are staged, its commit is not sent"),
    CrashPoint("worker.batch.posted", "direct: a batch is released in the worker's mailbox, its commit is not sent"),
    CrashPoint("worker.batch.after_commit", "the commit of a batch is sent, its answer is not read"),
    CrashPoint("worker.model.held", "the model is in memory of the GPU, which is held; there is no record of it yet"),
    CrashPoint("worker.model.resident", "the record of a model on the GPU is written; nothing is trained there yet"),
    CrashPoint("worker.model.written", "the model is written back to the arena, and the record does not say so yet"),
    CrashPoint("reader.batch.before_publish", "a reader has written a batch and has not published it"),
    CrashPoint("ps.data.before_apply", "a PS has received a request and has not begun it"),
    CrashPoint("ps.data.before_reply", "a PS has performed a request and has not answered it"),
    CrashPoint("ps.push.staged", "served: a push is staged and not answered"),
    CrashPoint("ps.commit.before_apply", "a batch is committed, its rows at the dense owner are not applied"),
    CrashPoint("ps.apply.before_undo", "served: a committed push is about to be applied"),
    CrashPoint("ps.apply.midway", "served: some of a push's rows are updated"),
    CrashPoint("ps.apply.before_finish", "served: all of a push's rows are updated, and `finished` is not stored yet"),
    CrashPoint("ps.apply.after_finish", "served: a push is applied, its stamp is not noted"),
    CrashPoint("ps.step.before_commit", "sync: a step has all its micro-batches and is not committed"),
    CrashPoint("ps.evict.midway", "a PS has evicted the old rows of one bucket and has not begun the next bucket"),
    CrashPoint("ps.snapshot.after_copy", "a PS has copied its buckets for a checkpoint and has not reported it"),
    CrashPoint("ps.handover.before_release", "a PS has to release buckets and still owns all of them"),
    CrashPoint("ps.handover.after_release", "a PS has released buckets and has not reported it"),
    CrashPoint("ps.handover.after_adopt", "a PS has adopted buckets and has not reported it"),
    CrashPoint("ps.move.source_mid_copy", "a PS has read a part of a bucket that a PS of another host copies"),
    CrashPoint("ps.move.target_mid_copy", "a PS has a part of a bucket that it copies from a PS of another host"),
    CrashPoint("ps.move.target_before_ready", "a PS has all buckets that move to it and has not reported it"),
    CrashPoint("ps.move.source_before_forget", "buckets have moved, and their old owner still has their rows"),
    CrashPoint("supervisor.move.before_commit", "all new owners have the moved rows, the journal has no line yet"),
    CrashPoint("supervisor.move.after_commit", "a migration is in the journal, and no process has been sent it yet"),
    CrashPoint("supervisor.journal.write", "the supervisor has made a decision and has not written it to the journal"),
    CrashPoint("supervisor.journal.written", "the supervisor has written a line and has not acted on it"),
)

_NAMES = frozenset(point.name for point in POINTS)
_armed: dict[str, int] = {}


def parse_setting(setting: str) -> dict[str, int]:
    """Parses `role.point[:count],...` to {point: count}; empty for "". Raises ConfigError, which names the wrong
    part."""
    counts: dict[str, int] = {}
    for item in filter(None, setting.split(",")):
        point, _, count = item.partition(":")
        if point not in _NAMES:
            raise ConfigError(
                f"{VARIABLE} names an unknown crash point {point!r}{did_you_mean(point, sorted(_NAMES))}",
                hint=f"the crash points are {', '.join(sorted(_NAMES))}",
            )
        if count and not (count.isdecimal() and int(count) > 0):
            raise ConfigError(
                f"{VARIABLE}: the count in {item!r} must be a whole number from 1 on, not {count!r}",
                hint=f"for example {point}:20",
            )
        counts[point] = int(count or 1)
    return counts


def arm(role: str, incarnation: int, environ: Mapping[str, str] = os.environ) -> None:
    """Arms the points of the environment variable that belong to the role, in a first incarnation. A process calls this
    once, at its start. Raises ConfigError as `parse_setting` does."""
    _armed.clear()
    setting = environ.get(VARIABLE, "")
    if setting and incarnation == 1:
        _armed.update({name: count for name, count in parse_setting(setting).items() if name.startswith(f"{role}.")})


def crash_point(name: str) -> None:
    """Kills this process with SIGKILL if the point is armed and its count is reached. Raises ValueError for a name that
    is not in POINTS, if any point is armed in this process."""
    if not _armed:
        return
    if name not in _NAMES:
        raise ValueError(f"{name!r} is not a crash point; add it to elastichost.wire.crash.POINTS")
    if name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
