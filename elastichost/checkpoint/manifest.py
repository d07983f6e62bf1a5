"""The manifest of a checkpoint, and the functions that commit a checkpoint and load its manifest."""

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

__all__ = [
    "DIGEST_NAME",
    "MANIFEST_NAME",
    "REPLACED",
    "SCHEMA",
    "BestFigure",
    "Manifest",
    "commit",
    "load_manifest",
    "verify_blocks",
]

SCHEMA = "elastichost/checkpoint/v1"
MANIFEST_NAME = "MANIFEST.json"
DIGEST_NAME = "MANIFEST.sha256"
REPLACED = ".replaced"  # end of the name of a checkpoint while another of the same name takes its place
MAX_MANIFEST_BYTES = 1 << 30


class BestFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a figure of the test data that was better than all before. samples: training samples that were
    accounted for when it was measured."""

    figure: str
    value: float
    samples: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of MANIFEST.json: one consistent cut of a run. ledger: the sample ledger as its own JSON value, which
    this package does not read. best: the weights gave this figure, the best one until then; None: they were not
    evaluated, or an earlier evaluation was better."""

    schema: str = SCHEMA
    run_id: str  # see `places.RunIdentity`
    job_name: str
    seed: int
    samples_trained: int
    epoch: int
    ledger: msgspec.Raw
    model: ModelSpec
    bucket_counts: tuple[int, ...]  # buckets of each table
    dense_version: int
    blocks: tuple[BlockRecord, ...]
    created_utc: str  # ISO 8601
    cpu: CpuFeatures  # of the supervisor's machine
    best: BestFigure | None = None

    def by_key(self) -> dict[BlockKey, BlockRecord]:
        """The records by (kind, owner, bucket)."""
        return {record.key: record for record in self.blocks}

    def required_keys(self) -> Iterator[BlockKey]:
        """The blocks that a restore of the model needs."""
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
    """Makes the staged blocks a checkpoint.

    It writes the manifest and its digest, fsyncs every file and the staging directory, renames the directory to
    `final`, and fsyncs the parent. So a kill before the rename leaves a staging directory, and a kill after it leaves a
    complete checkpoint. A checkpoint of the same name is first renamed to `<name>.replaced`, which is found as a
    checkpoint until the new one is in place, and then removed.

    Raises CheckpointError when a block of the model is missing or a file does not match the manifest, with `final`
    unchanged, and when a file operation fails.
    """
    check_manifest(staging, manifest)
    content = msgspec.json.encode(manifest)
    replaced = final.with_name(f"{final.name}{REPLACED}")
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
    """Reads a manifest and checks its SHA-256, its schema, that it lists every block of the model, and that every file
    exists and is long enough.

    is_whole=False: check only files that exist, because the others are on other machines. The content of a block is
    checked when it is read; `verify_blocks` reads all of them. Raises CheckpointError, which names the file.
    """
    path = directory / MANIFEST_NAME
    content = read_file(path, MAX_MANIFEST_BYTES)
    digest = read_file(directory / DIGEST_NAME, 1024)
    if hashlib.sha256(content).hexdigest().encode() + b"\n" != digest:
        raise CheckpointError(f"{path} is corrupt (its sha256 differs from {DIGEST_NAME})", hint=USE_ANOTHER)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{path} is not a manifest of {SCHEMA}: {error}", hint=USE_ANOTHER) from error
    check_manifest(directory, manifest, is_whole=is_whole)
    return manifest


def verify_blocks(directory: Path, manifest: Manifest) -> None:
    """Reads every block. Raises CheckpointError for the first one whose bytes are not those that were written."""
    for record in manifest.blocks:
        read_block(directory, record)


def check_manifest(directory: Path, manifest: Manifest, *, is_whole: bool = True) -> None:
    """Raises CheckpointError unless the manifest is valid and the files of `directory` match it. is_whole: as in
    `load_manifest`."""
    path = directory / MANIFEST_NAME
    if manifest.schema != SCHEMA:
        raise CheckpointError(f"{path} has schema {manifest.schema!r}; this version reads {SCHEMA!r}")

    tables = len(manifest.model.tables)
    if len(manifest.bucket_counts) != tables or any(e.table not in range(tables) for e in manifest.model.embeddings):
        raise CheckpointError(f"{path}: the bucket counts or embeddings do not match its {tables} tables")
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
                f"{directory / record.file} is cut short: {record} ends at byte {end}, but the file ends at byte "
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
