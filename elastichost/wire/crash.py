"""Named crash points for tests: `ELASTICHOST_CRASH_AT=ps.data.before_reply:20` kills the process there.

The number is how often the point is passed before it kills (1 by default); several points are separated by commas. Only
the first incarnation of a process obeys, so that its successor can show the recovery. `POINTS` is the list of all
points: what is not in it cannot be called or asked for.
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
    """`name` begins with the role whose process dies there: worker, ps or supervisor."""

    name: str
    meaning: str

    @property
    def role(self) -> str:
        return self.name.partition(".")[0]


POINTS: tuple[CrashPoint, ...] = (
    CrashPoint("worker.batch.begin", "a worker has a prepared batch and has not begun it"),
    CrashPoint("worker.batch.before_push", "a batch is computed (direct: its rows are updated), nothing of it is sent"),
    CrashPoint("worker.batch.before_commit", "served: its rows are with their owners; its commit is not sent"),
    CrashPoint("worker.batch.posted", "direct: a batch is released in the worker's mailbox, its commit is not sent"),
    CrashPoint("worker.batch.after_commit", "the commit of a batch is sent, its answer not read"),
    CrashPoint("ps.data.before_apply", "a PS has received a request and done nothing of it"),
    CrashPoint("ps.data.before_reply", "a PS has done what was asked and not answered"),
    CrashPoint("ps.push.staged", "served: a push is staged and not answered"),
    CrashPoint("ps.commit.before_apply", "a batch is committed, its rows at the dense owner are not applied"),
    CrashPoint("ps.apply.before_undo", "served: a committed push is about to be applied"),
    CrashPoint("ps.apply.midway", "served: some of a push's rows are updated"),
    CrashPoint("ps.apply.before_finish", "served: all of a push's rows are updated, that is not noted yet"),
    CrashPoint("ps.apply.after_finish", "served: a push is applied, its stamp is not noted"),
    CrashPoint("ps.step.before_commit", "sync: a step has all its micro-batches and is not committed"),
    CrashPoint(
        "ps.evict.midway", "a PS has dropped the rows of a bucket that nobody saw for long, and not of the next"
    ),
    CrashPoint("ps.snapshot.after_copy", "a PS has copied its buckets for a checkpoint and not said so"),
    CrashPoint("ps.handover.before_release", "a PS has to let go of buckets and still has them all"),
    CrashPoint("ps.handover.after_release", "a PS has let go of buckets and not said so"),
    CrashPoint("ps.handover.after_adopt", "a PS has taken buckets over and not said so"),
    CrashPoint("ps.move.source_mid_copy", "a PS has read a part of a bucket that another host's PS copies"),
    CrashPoint("ps.move.target_mid_copy", "a PS has some of a bucket that it copies from another host's PS"),
    CrashPoint("ps.move.target_before_ready", "a PS has all of the buckets that move to it, and has not said so"),
    CrashPoint("ps.move.source_before_forget", "buckets have moved, their old owner still has their rows"),
    CrashPoint("supervisor.move.before_commit", "all new owners have the rows that move, that is not written down"),
    CrashPoint("supervisor.move.after_commit", "that buckets have moved is written down, and nobody knows it"),
    CrashPoint("supervisor.journal.write", "the supervisor has decided something and not written it down"),
    CrashPoint("supervisor.journal.written", "the supervisor has written a line and done nothing of what it says"),
)

_NAMES = frozenset(point.name for point in POINTS)
_armed: dict[str, int] = {}


def parse_setting(setting: str) -> dict[str, int]:
    """Point -> count of `role.point[:count],...`; empty for "". Raises ConfigError naming what is wrong in it."""
    counts: dict[str, int] = {}
    for item in filter(None, setting.split(",")):
        point, _, count = item.partition(":")
        if point not in _NAMES:
            raise ConfigError(
                f"{VARIABLE} names an unknown crash point {point!r}{did_you_mean(point, sorted(_NAMES))}",
                hint=f"there are {', '.join(sorted(_NAMES))}",
            )
        if count and not (count.isdecimal() and int(count) > 0):
            raise ConfigError(f"{VARIABLE}: {item!r} counts with {count!r}", hint=f"write {point}:20, from 1 on")
        counts[point] = int(count or 1)
    return counts


def arm(role: str, incarnation: int, environ: Mapping[str, str] = os.environ) -> None:
    """Reads the environment once, at the start of a process. Raises ConfigError as `parse_setting`."""
    _armed.clear()
    setting = environ.get(VARIABLE, "")
    if setting and incarnation == 1:
        _armed.update({name: count for name, count in parse_setting(setting).items() if name.startswith(f"{role}.")})


def crash_point(name: str) -> None:
    """Kills this process with SIGKILL when the point is armed and its count is reached. In a process that is armed, a
    name that is no point raises ValueError."""
    if not _armed:
        return
    if name not in _NAMES:
        raise ValueError(f"{name!r} is no crash point: add it to elastichost.wire.crash.POINTS")
    if name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
