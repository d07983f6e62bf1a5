"""The scheduling priority of a process: nice, and the nice value of its session where the kernel groups by session.

With autogroup (sched(7); the default of most distributions) the kernel shares cores between sessions, and nice counts
only among the processes of one session. Every process of a run leads its own session, so nice alone would have no
effect. The nice value of a session is in /proc/PID/autogroup. A user may set it to 0 to 19 and back (nice itself can
only be raised), ten times a second on the whole host; an earlier write fails with EAGAIN.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

__all__ = ["begin_session", "give_way", "give_way_oneself"]

TRIES, TRY_AGAIN_S = 10, 0.02


def give_way(pid: int, nice: int) -> bool:
    """Sets the nice value, 0 to 19, of all threads of a process and of its session. To lower that of threads needs
    rights; without them the threads stay unchanged. Returns False when the caller must try again later. For a process
    that has ended it returns True."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True
    for thread in threads:
        try:
            os.setpriority(os.PRIO_PROCESS, int(thread), nice)
        except OSError:
            continue
    return _set_group(str(pid), nice)


def begin_session() -> None:
    """Makes this process the leader of a new session with the nice value of its old session. A session's value can be
    raised and lowered again; the nice values of threads can only be raised."""
    try:
        group = Path("/proc/self/autogroup").read_text(encoding="ascii")  # "/autogroup-25 nice 5"
    except OSError:
        group = "0"
    os.setsid()
    if nice := int(group.split()[-1]):
        give_way_oneself(nice, is_group_only=True)


def give_way_oneself(nice: int, *, is_group_only: bool = False) -> None:
    """`give_way` for this process. It tries again until it succeeds, for at most TRIES * TRY_AGAIN_S seconds."""
    for _ in range(TRIES):
        if _set_group("self", nice) if is_group_only else give_way(os.getpid(), nice):
            return
        time.sleep(TRY_AGAIN_S)


def _set_group(process: str, nice: int) -> bool:
    try:
        Path(f"/proc/{process}/autogroup").write_text(str(nice), encoding="ascii")
    except OSError as error:  # errors other than EAGAIN: the process has ended, or the kernel has no autogroup
        return error.errno != errno.EAGAIN
    return True
