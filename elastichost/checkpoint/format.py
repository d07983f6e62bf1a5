"""The layout of a checkpoint on disk, and the functions that write and read it.

    <checkpoints>/step-<samples>/
        server-<i>.bin     the blocks of PS i: raw little-endian arrays, each at a multiple of 64 bytes
        MANIFEST.json      a record of every block, the model, the sample ledger (`Manifest`)
        MANIFEST.sha256    the SHA-256 of the bytes of MANIFEST.json

Each PS writes its blocks with `BlockWriter` into a staging directory (`new_staging`). `commit` adds the manifest and
renames the directory to its final name, so a checkpoint is either complete or absent. Directories have mode 0700, files
0600. Symbolic links are not followed, and a name in a manifest that leads out of its directory is refused.
"""

from __future__ import annotations

from elastichost.checkpoint.blocks import (
    ALIGNMENT_BYTES,
    BlockKey,
    BlockKind,
    BlockRecord,
    BlockWriter,
    read_block,
    read_block_into,
)
from elastichost.checkpoint.catalogue import (
    FoundCheckpoint,
    checkpoint_directories,
    checkpoint_name,
    latest,
    new_staging,
    newest_best,
    remove_staging,
    retain,
    set_aside_newer,
)
from elastichost.checkpoint.manifest import (
    MANIFEST_NAME,
    REPLACED,
    SCHEMA,
    BestFigure,
    Manifest,
    commit,
    load_manifest,
    verify_blocks,
)

__all__ = [
    "ALIGNMENT_BYTES",
    "MANIFEST_NAME",
    "REPLACED",
    "SCHEMA",
    "BestFigure",
    "BlockKey",
    "BlockKind",
    "BlockRecord",
    "BlockWriter",
    "FoundCheckpoint",
    "Manifest",
    "checkpoint_directories",
    "checkpoint_name",
    "commit",
    "latest",
    "load_manifest",
    "new_staging",
    "newest_best",
    "read_block",
    "read_block_into",
    "remove_staging",
    "retain",
    "set_aside_newer",
    "verify_blocks",
]
