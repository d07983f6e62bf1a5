"""A committed checkpoint is read back bit by bit, and a damaged one is never accepted."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from elastichost.checkpoint.format import (
    ALIGNMENT_BYTES,
    MANIFEST_NAME,
    BestFigure,
    BlockRecord,
    BlockWriter,
    FoundCheckpoint,
    Manifest,
    checkpoint_directories,
    checkpoint_name,
    commit,
    latest,
    load_manifest,
    new_staging,
    newest_best,
    read_block,
    read_block_into,
    remove_staging,
    retain,
    set_aside_newer,
    verify_blocks,
)
from elastichost.errors import CheckpointError
from elastichost.host.cpu_features import present_cpu
from elastichost.specs import (
    DenseSpec,
    DenseTensor,
    EmbeddingSpec,
    ModelSpec,
    RowOptimizerSpec,
    TableSpec,
)

MODEL = ModelSpec(
    tables=(TableSpec(name="user", index=0, features=("user",), key_kind="int", rows=0),),
    embeddings=(
        EmbeddingSpec(
            name="user",
            index=0,
            table=0,
            module="ebc",
            kind="bag",
            features=("user",),
            dim=3,
            pooling="sum",
            optimizer=RowOptimizerSpec(),
            init_low=0.0,
            init_high=0.0,
        ),
    ),
    dense=DenseSpec(tensors=(DenseTensor(name="bias", shape=(2,), offset=0),), parameters=2, elements=2),
    num_dense_features=0,
    num_labels=1,
)


def write_checkpoint(
    root: Path, samples: int, *, skip: str = "", run_id: str = "r1", best: BestFigure | None = None
) -> Path:
    """Writes a checkpoint of two PS and two buckets. skip: the kind of blocks to leave out."""
    staging = new_staging(root, cut=samples)
    records: list[BlockRecord] = []
    for server in range(2):
        with BlockWriter(staging / f"server-{server}.bin") as writer:
            blocks = {
                "rows": np.full((3, 4), samples + server, dtype=np.float32),
                "state": np.zeros(3, dtype=np.float32),
                "ids": np.arange(3) + 10 * server,
                "seen": np.ones(3, dtype=np.uint32),
            }
            for kind, array in blocks.items():
                if kind != skip:
                    writer.add(kind, 0, server, array)  # type: ignore[arg-type]
            if server == 0:
                writer.add("dense", 0, 0, np.array([1.0, 2.0], dtype=np.float32))
        records += writer.records
    manifest = Manifest(
        run_id=run_id,
        job_name="test",
        seed=1,
        samples_trained=samples,
        epoch=0,
        ledger=msgspec.Raw(b'{"pending": [[1, 2]]}'),
        model=MODEL,
        bucket_counts=(2,),
        dense_version=7,
        blocks=tuple(records),
        created_utc="2026-01-01T00:00:00Z",
        cpu=present_cpu(),
        best=best,
    )
    final = root / checkpoint_name(samples)
    commit(staging, final, manifest)
    return final


def flip(path: Path, position: int) -> None:
    """Flips one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x01
    path.write_bytes(bytes(content))


def rewrite(directory: Path, **changes: object) -> None:
    """Changes a manifest, and writes its new SHA-256."""
    content = msgspec.json.encode(msgspec.structs.replace(load_manifest(directory), **changes))
    (directory / MANIFEST_NAME).write_bytes(content)
    (directory / "MANIFEST.sha256").write_text(hashlib.sha256(content).hexdigest() + "\n")


def found(root: Path) -> FoundCheckpoint:
    result = latest(root)
    assert result is not None
    return result


# --- round trips ---------------------------------------------------------------------------------------


@given(
    arrays=st.lists(
        numpy_st.arrays(
            dtype=st.sampled_from([np.float32, np.float64, np.int64, np.uint32, np.uint8]),
            shape=numpy_st.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
        ),
        max_size=5,
    )
)
def test_blocks_come_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, arrays: list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]
) -> None:
    directory = tmp_path_factory.mktemp("blocks")
    with BlockWriter(directory / "server-0.bin") as writer:
        for bucket, array in enumerate(arrays):
            writer.add("rows", 0, bucket, array)
    assert all(record.offset % ALIGNMENT_BYTES == 0 for record in writer.records)
    padded = [record.nbytes + -record.nbytes % ALIGNMENT_BYTES for record in writer.records]
    assert (directory / "server-0.bin").stat().st_size == sum(padded)
    for array, record in zip(arrays, writer.records, strict=True):
        back = read_block(directory, record)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert back.tobytes() == array.tobytes()


def test_big_endian_and_strided_arrays_are_written_little_endian(tmp_path: Path) -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2]
    with BlockWriter(tmp_path / "server-0.bin") as writer:
        record = writer.add("rows", 0, 0, array)
    assert record.dtype == "<f4"
    np.testing.assert_array_equal(read_block(tmp_path, record), array)


def test_a_manifest_comes_back_equal(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    manifest = load_manifest(directory)
    assert manifest.model == MODEL
    assert msgspec.json.decode(manifest.ledger) == {"pending": [[1, 2]]}
    assert (manifest.samples_trained, manifest.dense_version, manifest.schema) == (100, 7, "elastichost/checkpoint/v1")
    np.testing.assert_array_equal(read_block(directory, manifest.by_key()["ids", 0, 1]), [10, 11, 12])
    verify_blocks(directory, manifest)


def test_modes_are_private(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_reading_into_a_wrong_array_is_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    record = load_manifest(directory).by_key()["ids", 0, 0]
    with pytest.raises(ValueError, match="the target is <i8"):
        read_block_into(directory, record, np.empty(4, dtype=np.int64))


def test_dtypes_other_than_numbers_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="not supported in checkpoints"),
        BlockWriter(tmp_path / "server-0.bin") as writer,
    ):
        writer.add("ids", 0, 0, np.array(["a"]))


# --- damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rows", "state", "ids", "seen", "dense"])
def test_a_flipped_bit_in_any_block_is_found_and_named(tmp_path: Path, kind: str) -> None:
    directory = write_checkpoint(tmp_path, 100)
    manifest = load_manifest(directory)
    record = next(r for r in manifest.blocks if r.kind == kind)
    flip(directory / record.file, record.offset + record.nbytes - 1)
    with pytest.raises(CheckpointError, match=f"{record.file}: block {kind} 0 bucket 0 is corrupt"):
        verify_blocks(directory, manifest)


def test_a_flipped_bit_anywhere_in_the_manifest_is_found(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    for position in range(0, (directory / MANIFEST_NAME).stat().st_size, 97):
        flip(directory / MANIFEST_NAME, position)
        with pytest.raises(CheckpointError, match=r"MANIFEST\.json is corrupt"):
            load_manifest(directory)
        flip(directory / MANIFEST_NAME, position)
    load_manifest(directory)


@pytest.mark.parametrize("name", [MANIFEST_NAME, "MANIFEST.sha256", "server-1.bin"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path, 100)
    (directory / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_manifest(directory)


def test_a_truncated_block_file_is_found_by_its_size(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    os.truncate(directory / "server-1.bin", 150)
    with pytest.raises(CheckpointError, match=r"server-1.bin is cut short: block ids 0 bucket 1 ends at byte"):
        load_manifest(directory)


@pytest.mark.parametrize("kind", ["rows", "state", "ids", "seen"])
def test_an_incomplete_checkpoint_is_never_committed(tmp_path: Path, kind: str) -> None:
    with pytest.raises(CheckpointError, match=f"lacks block {kind} 0 bucket 0 and 1 more"):
        write_checkpoint(tmp_path, 100, skip=kind)
    assert latest(tmp_path) is None


@pytest.mark.parametrize("name", ["../server-0.bin", "/etc/passwd", "sub/server-0.bin", "..", "server-0.txt", ""])
def test_a_block_file_outside_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path, 100)
    blocks = load_manifest(directory).blocks
    rewrite(directory, blocks=(msgspec.structs.replace(blocks[0], file=name), *blocks[1:]))
    with pytest.raises(CheckpointError, match="is not a valid name of a block file"):
        load_manifest(directory)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    (directory / "server-1.bin").rename(tmp_path / "elsewhere.bin")
    (directory / "server-1.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(CheckpointError, match=r"server-1.bin.*\n.*symbolic link"):
        load_manifest(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": -64}, "offset -64"),
        ({"offset": 3}, "offset 3"),
        ({"dtype": "|O"}, r"dtype \|O"),
        ({"shape": (-1, 4)}, "impossible shape"),
        ({"shape": (1 << 40, 1 << 40)}, "impossible shape"),
        ({"shape": (1 << 40, 4)}, "cut short"),
    ],
)
def test_an_impossible_block_is_refused_before_memory_is_taken(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    directory = write_checkpoint(tmp_path, 100)
    blocks = load_manifest(directory).blocks
    rewrite(directory, blocks=(msgspec.structs.replace(blocks[0], **change), *blocks[1:]))
    with pytest.raises(CheckpointError, match=message):
        load_manifest(directory)


def test_another_schema_and_unknown_fields_are_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, 100)
    blocks = load_manifest(directory).blocks
    rewrite(directory, schema="elastichost/checkpoint/v9")
    with pytest.raises(CheckpointError, match="v9"):
        load_manifest(directory)
    other = write_checkpoint(tmp_path, 200)
    rewrite(other, blocks=(*blocks, blocks[0]))
    with pytest.raises(CheckpointError, match="lists a block twice"):
        load_manifest(other)


# --- writing -------------------------------------------------------------------------------------------


def test_a_block_file_is_never_overwritten(tmp_path: Path) -> None:
    with BlockWriter(tmp_path / "server-0.bin"):
        pass
    with pytest.raises(CheckpointError, match=r"cannot create .*server-0.bin"):
        BlockWriter(tmp_path / "server-0.bin")


def test_an_error_while_writing_leaves_no_file(tmp_path: Path) -> None:
    def write() -> None:
        with BlockWriter(tmp_path / "server-0.bin") as writer:
            writer.add("ids", 0, 0, np.arange(3))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_the_older_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 100)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = BlockWriter(new_staging(tmp_path, cut=2) / "server-0.bin")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write .*server-0.bin: File too large"), writer:
            writer.add("ids", 0, 0, np.arange(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not writer.path.exists()
    assert found(tmp_path).manifest.samples_trained == 100


def test_a_link_in_the_way_of_a_block_file_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "server-0.bin").symlink_to(tmp_path / "victim")
    with pytest.raises(CheckpointError, match="cannot create"):
        BlockWriter(tmp_path / "server-0.bin")
    assert not (tmp_path / "victim").exists()


def test_everything_is_durable_before_the_rename_and_the_rename_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(descriptor: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    write_checkpoint(tmp_path, 100)
    before, after = steps[: steps.index("rename")], steps[steps.index("rename") + 1 :]
    last_of_staging = len(before) - 1 - before[::-1].index(".staging-100")
    for name in ("server-0.bin", "server-1.bin", MANIFEST_NAME, "MANIFEST.sha256"):
        assert name in before[:last_of_staging]
    assert after == [tmp_path.name]


def test_a_crash_before_the_rename_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, 100)

    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            write_checkpoint(tmp_path, 200)
    assert found(tmp_path).manifest.samples_trained == 100
    write_checkpoint(tmp_path, 200)  # a new incarnation uses the same staging name
    assert found(tmp_path).manifest.samples_trained == 200


def test_a_crash_between_the_two_renames_of_a_replacement_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, 100)
    rename = Path.rename

    def crash_at_the_second(self: Path, target: Path) -> Path:
        if self.name.startswith(".staging"):
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            write_checkpoint(tmp_path, 100)
    assert found(tmp_path).directory.name == "step-100.replaced"
    write_checkpoint(tmp_path, 100)
    assert [path.name for path in checkpoint_directories(tmp_path)] == ["step-100"]


def test_committing_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 100)
    write_checkpoint(tmp_path, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["step-100"]


# --- the newest good one -------------------------------------------------------------------------------


def test_latest_compares_numbers_not_text(tmp_path: Path) -> None:
    for samples in (900, 1000, 20):
        write_checkpoint(tmp_path, samples)
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-5000").write_text("a file")
    assert [path.name for path in checkpoint_directories(tmp_path)] == ["step-1000", "step-900", "step-20"]
    assert found(tmp_path).manifest.samples_trained == 1000
    assert found(tmp_path).warnings == ()


@pytest.mark.parametrize("file", [MANIFEST_NAME, "server-0.bin"])
def test_latest_falls_back_and_says_why(tmp_path: Path, file: str) -> None:
    write_checkpoint(tmp_path, 100)
    flip(write_checkpoint(tmp_path, 200) / file, 5)
    result = found(tmp_path)
    assert result.manifest.samples_trained == 100
    assert len(result.warnings) == 1
    assert result.warnings[0].startswith("step-200 cannot be used: ")


def test_no_checkpoint_at_all_is_none_but_only_bad_ones_are_an_error(tmp_path: Path) -> None:
    assert latest(tmp_path / "absent") is None
    assert latest(tmp_path) is None
    (write_checkpoint(tmp_path, 100) / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointError, match="step-100 cannot be used"):
        latest(tmp_path)


def test_newer_checkpoints_are_set_aside_and_not_found_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 100)
    for _ in range(2):
        for samples in (200, 300):
            write_checkpoint(tmp_path, samples)
        assert set_aside_newer(tmp_path / "absent", 100) == ()
        assert len(set_aside_newer(tmp_path, 100)) == 2
        found = latest(tmp_path)
        assert found is not None
        assert found.directory.name == "step-100"
    kept = {"abandoned-step-200", "abandoned-step-200-2", "abandoned-step-300", "abandoned-step-300-2"}
    assert set(os.listdir(tmp_path)) == {"step-100", *kept}


def test_retain_keeps_the_newest_good_ones(tmp_path: Path) -> None:
    for samples in (100, 200, 300, 400):
        write_checkpoint(tmp_path, samples)
    (tmp_path / "step-300" / MANIFEST_NAME).unlink()
    removed = retain(tmp_path, keep=2)
    assert [path.name for path in removed] == ["step-100"]
    assert [path.name for path in checkpoint_directories(tmp_path)] == ["step-400", "step-300", "step-200"]
    assert [path.name for path in retain(tmp_path, keep=1)] == ["step-300", "step-200"]
    with pytest.raises(ValueError, match="keep=0 is out of range"):
        retain(tmp_path, keep=0)


def test_the_newest_best_checkpoint_is_kept_and_found(tmp_path: Path) -> None:
    assert newest_best(tmp_path, run_id="r1") is None
    for samples, figure in ((100, "auc"), (200, "auc"), (300, ""), (400, ""), (500, "")):
        write_checkpoint(tmp_path, samples, best=BestFigure(figure, 0.7, samples) if figure else None)
    write_checkpoint(tmp_path, 900, run_id="r2", best=BestFigure("auc", 0.9, 900))
    assert [path.name for path in retain(tmp_path, keep=2, run_id="r1")] == ["step-300", "step-100"]
    assert retain(tmp_path, keep=2, run_id="r1") == ()
    found = newest_best(tmp_path, tmp_path / "absent", run_id="r1", figure="auc")
    assert found is not None and found.directory.name == "step-200"
    assert found.manifest.best == BestFigure("auc", 0.7, 200)
    assert newest_best(tmp_path, run_id="r1", figure="logloss") is None
    write_checkpoint(tmp_path, 600, best=BestFigure("auc", 0.8, 600))
    assert [path.name for path in retain(tmp_path, keep=1, run_id="r1")] == ["step-500", "step-400", "step-200"]
    (tmp_path / "step-600" / MANIFEST_NAME).write_text("damaged")
    assert newest_best(tmp_path, run_id="r1") is None


# --- checkpoints of other runs ----------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_is_never_used(tmp_path: Path) -> None:
    own, other = write_checkpoint(tmp_path, 100), write_checkpoint(tmp_path, 900, run_id="r2")
    found = latest(tmp_path, run_id="r1")
    assert found is not None and found.directory == own
    assert found.warnings == ("step-900 cannot be used: it belongs to run r2 (job test), not to run r1",)
    of_any_run = latest(tmp_path)
    assert of_any_run is not None and of_any_run.directory == other
    with pytest.raises(CheckpointError, match="belongs to run r2 .job test., not to run r3") as raised:
        latest(tmp_path, run_id="r3")
    assert "--from" in raised.value.hint


def test_retention_leaves_other_runs_alone(tmp_path: Path) -> None:
    others = [write_checkpoint(tmp_path, samples, run_id="r2") for samples in (50, 350, 900)]
    own = [write_checkpoint(tmp_path, samples) for samples in (100, 200, 300)]
    assert retain(tmp_path, 2, run_id="r1") == (own[0],)
    assert all(path.is_dir() for path in (*others, *own[1:]))


def test_two_writers_never_share_a_staging_directory(tmp_path: Path) -> None:
    """Regression: two runs with a shared directory both wrote server-0.bin to staging-4, and one of them failed."""
    first, second = new_staging(tmp_path, 4, "a"), new_staging(tmp_path, 4, "b")
    for staging, value in ((first, 1.0), (second, 2.0)):
        with BlockWriter(staging / "server-0.bin") as writer:
            writer.add("dense", 0, 0, np.array([value], dtype=np.float32))
    assert first != second and (first / "server-0.bin").read_bytes() != (second / "server-0.bin").read_bytes()
    remove_staging(tmp_path)
    assert list(tmp_path.iterdir()) == []
