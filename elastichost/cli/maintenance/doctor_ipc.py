"""Finds out whether systemd removes a user's files below /dev/shm at logout (setting `RemoveIPC` of logind)."""

from __future__ import annotations

import configparser
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LogindFacts", "logind_facts", "removes_files"]

FIRST_USER_ID = 1000  # logind never removes files of system users, whose ids are lower
MAIN_FILE = "systemd/logind.conf"
# The directories that systemd reads, by falling priority. Of drop-ins with one name, the first directory's counts.
PLACES = ("etc", "run", "usr/local/lib", "usr/lib")
TRUE = frozenset({"1", "yes", "y", "true", "t", "on"})


@dataclass(frozen=True, slots=True)
class LogindFacts:
    """is_running: systemd manages this machine. removes: the value of RemoveIPC; "" if it is not set, which systemd
    treats as "yes". lingers: the user's session never ends (`loginctl enable-linger`)."""

    is_running: bool
    user_id: int
    user: str
    removes: str
    lingers: bool


def logind_facts(root: Path = Path("/"), user_id: int | None = None) -> LogindFacts:
    """Reads the settings of logind. root: of the file system to read. user_id: None for the user of this process."""
    number = os.geteuid() if user_id is None else user_id
    try:
        user = pwd.getpwuid(number).pw_name
    except KeyError:
        user = str(number)
    return LogindFacts(
        is_running=(root / "run/systemd/system").is_dir(),
        user_id=number,
        user=user,
        removes=_setting(root),
        lingers=(root / "var/lib/systemd/linger" / user).exists(),
    )


def removes_files(facts: LogindFacts, arena_root: Path) -> bool:
    """Whether systemd removes the user's arenas at the end of the user's last session."""
    is_shared_memory = arena_root.is_relative_to("/dev/shm")
    is_on = facts.removes.lower() in TRUE or facts.removes == ""
    return facts.is_running and is_shared_memory and facts.user_id >= FIRST_USER_ID and is_on and not facts.lingers


def _setting(root: Path) -> str:
    """The value of RemoveIPC that takes effect, "" if no file sets it."""
    files = [path for place in PLACES if (path := root / place / MAIN_FILE).is_file()][:1]
    drop_ins: dict[str, Path] = {}
    for place in reversed(PLACES):
        drop_ins |= {path.name: path for path in (root / place / f"{MAIN_FILE}.d").glob("*.conf")}
    found = ""
    for path in (*files, *(drop_ins[name] for name in sorted(drop_ins))):
        found = _of_file(path) or found
    return found


def _of_file(path: Path) -> str:
    """The value of RemoveIPC in one file; "" if the file does not set it or cannot be read."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    try:
        parsed.read(path, encoding="utf-8")
    except (OSError, UnicodeDecodeError, configparser.Error):
        return ""
    return parsed.get("Login", "RemoveIPC", fallback="").strip()
