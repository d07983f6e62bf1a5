"""Creates a temporary arena in the directory where runs have their arenas."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastichost.arena.arena import Arena
from elastichost.arena.host import arena_root
from elastichost.arena.layout import plan_layout
from elastichost.specs import ModelSpec

__all__ = ["temporary_arena"]


@contextmanager
def temporary_arena(model: ModelSpec, memory_bytes: int) -> Iterator[Arena]:
    root = Path(tempfile.mkdtemp(prefix=f"elastichost-{os.geteuid()}-benchmark-", dir=arena_root()))
    try:
        with Arena.create(root, plan_layout(model, 0, memory_bytes)) as arena:
            yield arena
    finally:
        shutil.rmtree(root)
