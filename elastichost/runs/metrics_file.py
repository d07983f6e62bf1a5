"""Opens a database of a run for reading, without a trace."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

__all__ = ["connect_to_read"]


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Opens a database for reading, without writing to it or creating files beside it. Raises sqlite3.Error."""
    log = path.with_name(f"{path.name}-wal")
    is_open = log.exists() and log.stat().st_size > 0
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{'mode=ro' if is_open else 'immutable=1'}", uri=True)
