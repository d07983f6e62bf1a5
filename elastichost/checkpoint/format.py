"""What a checkpoint is on disk, and the functions that write and read it.

    <checkpoints>/step-<samples>/
        server-<i>.bin     raw little-endian blocks, each at a multiple of 64 bytes
        MANIFEST.json      what every block is, the model, the sample ledger: `Manifest`
        MANIFEST.sha256    of MANIFEST.json's bytes

A PS writes its blocks with `BlockWriter` into a staging directory (`new_staging`); `commit` adds the manifest and
renames the directory into place, so a checkpoint is there completely or not at all. Directories are 0700, files 0600;
no symbolic link is followed, and no name in a manifest may leave its directory.
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
    remove_staging,
    retain,
)
from elastichost.checkpoint.manifest import MANIFEST_NAME, SCHEMA, Manifest, commit, load_manifest, verify_blocks

__all__ = [
    "ALIGNMENT_BYTES",
    "MANIFEST_NAME",
    "SCHEMA",
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
    "read_block",
    "read_block_into",
    "remove_staging",
    "retain",
    "verify_blocks",
]
