"""The user's directory of caches: indexes of text files, plain copies, ranges of remote files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory(environ: Mapping[str, str]) -> Path:
    """$ELASTICHOST_CACHE, or the directory `elastichost` in the user's cache directory."""
    if own := environ.get("ELASTICHOST_CACHE"):
        return Path(own)
    if user_cache := environ.get("XDG_CACHE_HOME"):
        return Path(user_cache) / "elastichost"
    return Path.home() / ".cache" / "elastichost"
