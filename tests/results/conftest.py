"""A finished run without training: a job, a data file, and a checkpoint of random weights that the tests know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn
from torchrec import EmbeddingBagCollection

from elastichost.checkpoint.format import BlockWriter, Manifest, checkpoint_name, commit, new_staging
from elastichost.checkpoint.places import RUN_FILE, new_identity
from elastichost.config.job import load_job, to_toml
from elastichost.config.tables import resolve_tables
from elastichost.host.cpu_features import present_cpu
from elastichost.results.preprocess import xxh64
from elastichost.sharding import bucket_count, bucket_of_hash, mix64, rows_per_bucket
from elastichost.specs import EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.user_model.build import build_model
from elastichost.worker.model.dense_vector import describe_dense, initial_vector
from elastichost.worker.model.embedding import collections_of, meta_collections, table_rows

FIXED_ROWS = 3000  # three buckets
CODES = 7
KEY_KINDS = {"user": "int", "item": "int", "recent": "int", "word": "string", "code": "string"}
JOB = """\
[job]
name = "hand-made"
[model]
build = "{build}"
args = {args}
outputs = "{outputs}"
[data]
train = ["{data}"]
label = {label}
dense = ["price", "age"]
categorical = ["user", "item", "recent", "word", "code"]
null_fill = 0.5
dense_transform = "log1p"
[tables.default]
dim = 6
[tables.items]
features = ["item", "recent"]
rows = 3000
out_of_range = "modulo"
pooling = "mean"
[tables.code]
rows = 7
"""


@dataclass(frozen=True)
class HandMadeRun:
    """`vectors`: (embedding name, key) -> its row. Keys are those of a reader: ids, or XXH64 as int64."""

    directory: Path
    checkpoint: Path
    manifest: Manifest
    vectors: dict[tuple[str, int], npt.NDArray[np.float32]]
    dense: dict[str, npt.NDArray[np.float32]]
    known_keys: dict[str, list[int]]
    table: pa.Table

    def pooled(self, embedding: EmbeddingSpec, keys: list[int]) -> npt.NDArray[np.float32]:
        """The vector of one bag, computed directly; unknown keys are left out."""
        rows = [self.vectors[embedding.name, key] for key in keys if (embedding.name, key) in self.vectors]
        if not rows:
            return np.zeros(embedding.dim, dtype=np.float32)
        total: npt.NDArray[np.float32] = np.sum(rows, axis=0, dtype=np.float32)
        return total / np.float32(len(rows)) if embedding.pooling == "mean" else total

    def bags(self, feature: str) -> list[list[int]]:
        """The keys of each sample's bag, or its rows for a fixed table, computed directly."""
        column = self.table.column(feature).to_pylist()
        lists = [value if isinstance(value, list) else [value] for value in column]
        keys = [[as_key(one) for one in ids if one is not None] for ids in lists]
        if feature in ("item", "recent"):
            return [[key % FIXED_ROWS for key in bag] for bag in keys]
        if feature == "code":
            return [[key % 2**64 % CODES for key in bag] for bag in keys]
        return keys

    def dense_inputs(self) -> npt.NDArray[np.float32]:
        columns = [self.table.column(name).to_pylist() for name in ("price", "age")]
        filled = [[0.5 if v is None or np.isnan(v) else np.log1p(max(v, 0)) for v in column] for column in columns]
        return np.array(filled, dtype=np.float32).T

    def dlrm_logits(self) -> npt.NDArray[np.float32]:
        """The scores of the DLRM with the weights of the checkpoint, computed directly."""
        w = self.dense
        bottom = self.dense_inputs()
        for layer in range(2):
            name = f"network.dense_arch.model._mlp.{layer}._linear"
            bottom = np.maximum(bottom @ w[f"{name}.weight"].T + w[f"{name}.bias"], 0)
        first, last = "network.over_arch.model.0._mlp.0._linear", "network.over_arch.model.1"
        logits = []
        for sample, vector in enumerate(bottom):
            vectors = [vector]
            for embedding in self.manifest.model.embeddings:
                vectors += [self.pooled(embedding, self.bags(feature)[sample]) for feature in embedding.features]
            products = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i + 1, len(vectors))]
            top = np.concatenate([vector, np.array(products, dtype=np.float32)])
            hidden = np.maximum(w[f"{first}.weight"] @ top + w[f"{first}.bias"], 0)
            logits.append(w[f"{last}.weight"][0] @ hidden + w[f"{last}.bias"][0])
        return np.array(logits, dtype=np.float32)


def as_key(value: object) -> int:
    if isinstance(value, int):
        return value
    assert isinstance(value, str)
    return int(np.uint64(xxh64(value)).astype(np.int64))


def samples() -> pa.Table:
    """Data with nulls, empty lists, extreme and unknown ids, and ids beyond the fixed table."""
    return pa.table(
        {
            "label": pa.array([1, 0, 1, 0, 1, 0]),
            "other": pa.array([0, 0, 1, 1, 0, 1]),
            "price": pa.array([1.0, None, -3.0, 0.25, 7.0, float("nan")]),
            "age": pa.array([3, 5, None, 0, 2**20, 1]),
            "user": pa.array([2**63 - 1, -(2**63), 2**60 + 1, None, 123456789, 5], type=pa.int64()),
            "item": pa.array([0, 2999, 3000, 6001, -1, 1500]),
            "recent": pa.array([[1, 2, 2], [], None, [None, 2048], [4000], [1024, 1023]], type=pa.list_(pa.int64())),
            "word": pa.array(["tee", "käse", None, "unseen word", "", "tee"]).dictionary_encode(),
            "code": pa.array(["a", "b", "c", None, "x" * 40, "a"]),
        }
    )


def table_keys(table: TableSpec, generator: np.random.Generator) -> list[int]:
    """The keys of a dynamic table that have rows."""
    if table.name == "user":
        few = [2**63 - 1, -(2**63), 2**60 + 1, 5]
        return [*few, *generator.integers(-(2**62), 2**62, size=40).tolist()]
    return [as_key(word) for word in ("tee", "käse", "", "brot", "a much longer word than thirty-two bytes")]


def describe(model: nn.Module, tables: tuple[TableSpec, ...]) -> tuple[EmbeddingSpec, ...]:
    specs: list[EmbeddingSpec] = []
    for path, collection in collections_of(model):
        is_bag = isinstance(collection, EmbeddingBagCollection)
        configs = collection.embedding_bag_configs() if is_bag else collection.embedding_configs()
        for config in configs:
            table = next(t for t in tables if set(config.feature_names) <= set(t.features))
            specs.append(
                EmbeddingSpec(
                    name=config.name,
                    index=len(specs),
                    table=table.index,
                    module=path,
                    kind="bag" if is_bag else "sequence",
                    features=tuple(config.feature_names),
                    dim=config.embedding_dim,
                    pooling=config.pooling.name.lower() if is_bag else "none",
                    optimizer=RowOptimizerSpec(),
                    init_low=0.0,
                    init_high=0.0,
                )
            )
    return tuple(specs)


class CheckpointMaker:
    """Writes random rows for every bucket, as a PS writes them. Every third row of a dynamic bucket is free."""

    def __init__(self, model: ModelSpec, writer: BlockWriter, *, is_empty: bool) -> None:
        self.model, self.writer, self.is_empty = model, writer, is_empty
        self.generator = np.random.default_rng(3)
        self.vectors: dict[tuple[str, int], npt.NDArray[np.float32]] = {}
        self.known_keys: dict[str, list[int]] = {}

    def add_table(self, table: TableSpec) -> None:
        if not table.is_dynamic:
            for bucket in range(bucket_count(table)):
                first = bucket * rows_per_bucket(table)
                keys = list(range(first, min(first + rows_per_bucket(table), table.rows)))
                self.add_rows(table, bucket, keys, [1] * len(keys))
            return
        keys = [] if self.is_empty else table_keys(table, self.generator)
        self.known_keys[table.name] = keys
        for bucket in range(bucket_count(table)):
            mine = [key for key in keys if bucket_of_hash(mix64(key), bucket_count(table)) == bucket]
            spread = [part for i, key in enumerate(mine) for part in ([(key, 9)] if i % 2 else [(key, 9), (key, 0)])]
            ids = np.array([key for key, _ in spread], dtype=np.int64)
            seen = np.array([mark for _, mark in spread], dtype=np.uint32)
            self.writer.add("ids", table.index, bucket, ids)
            self.writer.add("seen", table.index, bucket, seen)
            self.add_rows(table, bucket, ids.tolist(), seen.tolist())

    def add_rows(self, table: TableSpec, bucket: int, keys: list[int], seen: list[int]) -> None:
        for embedding in self.model.embeddings_of(table.index):
            block = self.generator.normal(0, 0.3, (len(keys), embedding.padded_dim)).astype(np.float32)
            block[:, embedding.dim :] = 99.0  # padding must never be used
            self.writer.add("rows", embedding.index, bucket, block)
            self.writer.add("state", embedding.index, bucket, np.zeros(len(keys), dtype=np.float32))
            for key, mark, row in zip(keys, seen, block, strict=True):
                if mark:
                    self.vectors[embedding.name, key] = row[: embedding.dim]


def make_run(
    directory: Path,
    build: str = "elastichost.models:dlrm",
    args: str = "{ bottom = [8, 6] }",
    label: str = '"label"',
    outputs: str = "logits",
    is_empty: bool = False,
    lists: tuple[str, ...] | None = ("recent",),
) -> HandMadeRun:
    directory.mkdir(parents=True)
    data = directory / "samples.parquet"
    pq.write_table(samples(), data, row_group_size=4)
    text = JOB.format(build=build, args=args, outputs=outputs, data=data, label=label)
    (directory / "job.toml").write_text(text, encoding="utf-8")
    job = load_job(directory / "job.toml", environ={})
    (directory / "job.resolved.toml").write_text(to_toml(job), encoding="utf-8")
    tables = resolve_tables(job, KEY_KINDS)  # type: ignore[arg-type]
    labels = len(job.data.labels)
    with meta_collections():
        module = build_model(job, tables, table_rows(tables), 2, labels)
    embeddings = describe(module, tables)
    for path, collection in collections_of(module):
        bags: Any = collection.embedding_bags if hasattr(collection, "embedding_bags") else collection.embeddings
        assert path
        for bag in bags.values():
            del bag._parameters["weight"]
    dense = describe_dense(module)
    model = ModelSpec(
        tables=tables, embeddings=embeddings, dense=dense, num_dense_features=2, num_labels=labels, list_features=lists
    )
    vector = initial_vector(module, dense)
    (directory / RUN_FILE).write_bytes(msgspec.json.encode(new_identity("hand-made", "0123456789abcdef")))
    staging = new_staging(directory / "checkpoints", cut=1)
    with BlockWriter(staging / "server-0.bin") as writer:
        maker = CheckpointMaker(model, writer, is_empty=is_empty)
        for table in tables:
            maker.add_table(table)
        writer.add("dense", 0, 0, vector)
    manifest = Manifest(
        run_id="0123456789abcdef",
        job_name="hand-made",
        seed=0,
        samples_trained=600,
        epoch=1,
        ledger=msgspec.Raw(b"{}"),
        model=model,
        bucket_counts=tuple(bucket_count(table) for table in tables),
        dense_version=1,
        blocks=writer.records,
        created_utc="2026-01-01T00:00:00Z",
        cpu=present_cpu(),
    )
    checkpoint = directory / "checkpoints" / checkpoint_name(600)
    commit(staging, checkpoint, manifest)
    return HandMadeRun(
        directory=directory,
        checkpoint=checkpoint,
        manifest=manifest,
        vectors=maker.vectors,
        dense={t.name: vector[t.offset : t.offset + t.elements].reshape(t.shape) for t in dense.tensors},
        known_keys=maker.known_keys,
        table=samples(),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> HandMadeRun:
    """The run that all tests of a module read."""
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """A function that makes a run with other arguments of `make_run`."""

    def build(**kwargs: Any) -> HandMadeRun:
        return make_run(tmp_path / "made", **kwargs)

    return build
