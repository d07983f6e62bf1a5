"""Checks that a directory belongs to this user alone, for directories whose names other users can guess."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from elastichost.errors import ArenaError

__all__ = ["check_own"]


def check_own(path: Path) -> None:
    """Raises ArenaError when `path` exists and is not a directory of this user alone (mode 0700): another user may have
    created it."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArenaError(f"{path} cannot be checked: {error}") from error
    if not stat.S_ISDIR(facts.st_mode):
        wrong = "is not a directory"
    elif facts.st_uid != os.geteuid():
        wrong = f"belongs to the user with id {facts.st_uid}"
    elif facts.st_mode & 0o077:
        wrong = f"is open to other users (mode {stat.S_IMODE(facts.st_mode):04o})"
    else:
        return
    raise ArenaError(
        f"{path} {wrong}: elastichost does not use it, because its content cannot be trusted",
        hint="remove it, or set TMPDIR and ELASTICHOST_ARENA_DIR to directories that only you can write to",
    )
