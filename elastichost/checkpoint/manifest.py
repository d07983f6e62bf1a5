"""The manifest: what a checkpoint holds, and the two steps that count, committing and loading it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from elastichost.checkpoint.blocks import BlockKey, BlockRecord, check_record, read_block
from elastichost.checkpoint.files import (
    USE_ANOTHER,
    disk_error,
    open_for_reading,
    read_file,
    remove_tree,
    sync_directory,
    write_file,
)
from elastichost.errors import CheckpointError
from elastichost.host.cpu_features import CpuFeatures
from elastichost.specs import ModelSpec

__all__ = ["DIGEST_NAME", "MANIFEST_NAME", "SCHEMA", "Manifest", "commit", "load_manifest", "verify_blocks"]

SCHEMA = "elastichost/checkpoint/v1"
MANIFEST_NAME = "MANIFEST.json"
DIGEST_NAME = "MANIFEST.sha256"
MAX_MANIFEST_BYTES = 1 << 30


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One consistent cut of a run. `ledger` is the sample ledger's own JSON value; nothing here looks into it."""

    schema: str = SCHEMA
    run_id: str  # see `places.RunIdentity`
    job_name: str
    seed: int
    samples_trained: int
    epoch: int
    ledger: msgspec.Raw
    model: ModelSpec
    bucket_counts: tuple[int, ...]  # per table
    dense_version: int
    blocks: tuple[BlockRecord, ...]
    created_utc: str  # ISO 8601
    cpu: CpuFeatures  # of the supervisor's machine

    def by_key(self) -> dict[BlockKey, BlockRecord]:
        """(kind, owner, bucket) -> record"""
        return {record.key: record for record in self.blocks}

    def required_keys(self) -> Iterator[BlockKey]:
        """Blocks without which the model cannot be put together again."""
        for embedding in self.model.embeddings:
            for bucket in range(self.bucket_counts[embedding.table]):
                yield "rows", embedding.index, bucket
                if embedding.state_floats_per_row:
                    yield "state", embedding.index, bucket
        for table in self.model.tables:
            if table.is_dynamic:
                for bucket in range(self.bucket_counts[table.index]):
                    yield "ids", table.index, bucket
                    yield "seen", table.index, bucket
        if self.model.dense.elements:
            yield "dense", 0, 0


def commit(staging: Path, final: Path, manifest: Manifest) -> None:
    """Makes the staged blocks a checkpoint: manifest, fsync of everything, one rename, fsync of the parent.

    A checkpoint of the same name is replaced; between two renames it is found as `<name>.replaced`. Raises
    CheckpointError, with `final` as it was, when a block of the model is missing, a file is not as the manifest
    says, or the disk refuses.
    """
    check_manifest(staging, manifest)
    content = msgspec.json.encode(manifest)
    replaced = final.with_name(f"{final.name}.replaced")
    try:
        write_file(staging / MANIFEST_NAME, content)
        write_file(staging / DIGEST_NAME, hashlib.sha256(content).hexdigest().encode() + b"\n")
        for name in sorted({record.file for record in manifest.blocks}):
            _sync_file(staging / name)
        staging.chmod(0o700)
        sync_directory(staging)
        if final.exists():
            remove_tree(replaced)
            final.rename(replaced)
        staging.rename(final)
        sync_directory(final.parent)
        if staging.parent != final.parent:
            sync_directory(staging.parent)
        remove_tree(replaced)
    except OSError as error:
        raise disk_error("cannot commit the checkpoint", final, error) from error


def load_manifest(directory: Path, *, is_whole: bool = True) -> Manifest:
    """Reads and checks a manifest: its sha256, its schema, that every block of the model is there, and that every
    file is there with the size needed (is_whole=False: those that are there; others are on other machines). Contents of
    blocks are checked when they are read (`verify_blocks`: all of them).

    Raises CheckpointError naming the file."""
    path = directory / MANIFEST_NAME
    content = read_file(path, MAX_MANIFEST_BYTES)
    digest = read_file(directory / DIGEST_NAME, 1024)
    if hashlib.sha256(content).hexdigest().encode() + b"\n" != digest:
        raise CheckpointError(f"{path} is corrupt (its sha256 is not that of {DIGEST_NAME})", hint=USE_ANOTHER)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{path} is not a manifest of {SCHEMA}: {error}", hint=USE_ANOTHER) from error
    check_manifest(directory, manifest, is_whole=is_whole)
    return manifest


def verify_blocks(directory: Path, manifest: Manifest) -> None:
    """Reads every byte of every block. Raises CheckpointError for the first one that is not as written."""
    for record in manifest.blocks:
        read_block(directory, record)


def check_manifest(directory: Path, manifest: Manifest, *, is_whole: bool = True) -> None:
    """Raises CheckpointError unless this manifest and the files of `directory` make a checkpoint, a whole one if it is
    to be."""
    path = directory / MANIFEST_NAME
    if manifest.schema != SCHEMA:
        raise CheckpointError(f"{path} has schema {manifest.schema!r}; this version reads {SCHEMA!r}")
    tables = len(manifest.model.tables)
    if len(manifest.bucket_counts) != tables or any(e.table not in range(tables) for e in manifest.model.embeddings):
        raise CheckpointError(f"{path}: bucket counts and embeddings do not fit its {tables} tables")
    present = manifest.by_key()
    if len(present) != len(manifest.blocks):
        raise CheckpointError(f"{path} lists a block twice")
    missing = [key for key in manifest.required_keys() if key not in present]
    if missing:
        kind, owner, bucket = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{path} lacks block {kind} {owner} bucket {bucket}{more}", hint=USE_ANOTHER)
    sizes_bytes: dict[str, int] = {}
    for record in manifest.blocks:
        check_record(directory, record)
        if not is_whole and not (directory / record.file).exists():
            continue
        if record.file not in sizes_bytes:
            sizes_bytes[record.file] = _file_size(directory / record.file)
        end = record.offset + record.nbytes
        if end > sizes_bytes[record.file]:
            raise CheckpointError(
                f"{directory / record.file} is cut short: {record} ends at byte {end}, the file at byte "
                f"{sizes_bytes[record.file]}",
                hint=USE_ANOTHER,
            )


def _sync_file(path: Path) -> None:
    descriptor = open_for_reading(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file_size(path: Path) -> int:
    try:
        descriptor = open_for_reading(path)
    except OSError as error:
        raise disk_error("cannot read", path, error) from error
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
