"""How much a process gives way to others: nice, and where the kernel groups processes by session, the group's as well.

With autogroup (sched(7); the default of most distributions) cores are shared between sessions, and nice only counts
among the processes of one. Every process of a run leads a session of its own: nice alone would do nothing at all. The
group's number is in /proc/PID/autogroup. A user may set it to 0 to 19 and back (nice itself only up), ten times a
second on the whole host; a write that comes too early fails with EAGAIN.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

__all__ = ["begin_session", "give_way", "give_way_oneself"]

TRIES, TRY_AGAIN_S = 10, 0.02


def give_way(pid: int, nice: int) -> bool:
    """All threads of a process and its session give way so much, 0 to 19. Less than before needs rights for the
    threads, and those are then left as they are. False: it is to be tried again later; a process that is gone is done
    with."""
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
    """This process leads a session from now on, which gives way as the one did that it was in. What a user has told to
    give way and back has the session's number back, but not its threads'."""
    try:
        group = Path("/proc/self/autogroup").read_text(encoding="ascii")  # "/autogroup-25 nice 5"
    except OSError:
        group = "0"
    os.setsid()
    if nice := int(group.split()[-1]):
        give_way_oneself(nice, is_group_only=True)


def give_way_oneself(nice: int, *, is_group_only: bool = False) -> None:
    """As `give_way`, tried until it is done, for TRIES * TRY_AGAIN_S at most."""
    for _ in range(TRIES):
        if _set_group("self", nice) if is_group_only else give_way(os.getpid(), nice):
            return
        time.sleep(TRY_AGAIN_S)


def _set_group(process: str, nice: int) -> bool:
    try:
        Path(f"/proc/{process}/autogroup").write_text(str(nice), encoding="ascii")
    except OSError as error:  # else: no such process, or a kernel without autogroup
        return error.errno != errno.EAGAIN
    return True
