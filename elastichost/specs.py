"""The parts of a job's model: id tables, the embeddings over them, and the dense part.

A **table** is an id space: which ids exist, which row an id has, which bucket a row is in. An **embedding** is one set
of row vectors over a table's ids: torchrec's `EmbeddingBagConfig`. A table may have several embeddings (wide & deep:
one of dimension 16 and one of dimension 1); they share the table's row numbers, so an id is looked up once. The
**dense** part is every other parameter of the model, as one flat float32 vector.

These structs are stored as JSON (`LAYOUT.json` in the arena, `MANIFEST.json` in a checkpoint), so they hold only plain
values.

The largest numbers of workers and PS are here too: the layout of the arena and the checks of the job file need them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "MAX_SERVERS",
    "MAX_WORKERS",
    "DenseSpec",
    "DenseTensor",
    "EmbeddingSpec",
    "KeyKind",
    "ModelSpec",
    "OutOfRange",
    "Pooling",
    "Precision",
    "RowOptimizer",
    "RowOptimizerSpec",
    "TableSpec",
    "model_difference",
]

# The arena has words for this many workers and PS.
MAX_WORKERS = 256
MAX_SERVERS = 64

KeyKind = Literal["int", "string"]
OutOfRange = Literal["error", "modulo"]
Pooling = Literal["sum", "mean", "none"]
Precision = Literal["float32", "bfloat16"]
RowOptimizer = Literal["sgd", "adagrad", "rowwise_adagrad", "adam"]


class RowOptimizerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer of embedding rows, as fbgemm's fused kernels define it.

    rowwise_adagrad: s += mean(g^2); w -= lr / (sqrt(s) + eps) * g     (one s per row)
    adagrad:         s += g^2;       w -= lr / (sqrt(s) + eps) * g     (one s per element)
    sgd:             w -= lr * g
    adam:            t += 1;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2      (t per row, m and v per element)
                     w -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)

    Only the rows of a batch (with served access of a push, in sync mode of a step) are updated, each once, with the sum
    of its gradients. Each of these rows first shrinks, w *= 1 - lr * weight_decay: decoupled weight decay, fbgemm's
    WeightDecayMode.DECOUPLE. Adam's t counts the updates of the row itself, so the step of a row is that of
    torch.optim.Adam (with weight_decay: AdamW) over the batches that have the row. fbgemm's EmbOptimType.ADAM and
    torch.optim.SparseAdam count all steps instead: the first step of a row that is made late is then
    (1 - b1) / sqrt(1 - b2) times the learning rate, 3.2 with the usual betas, where here it is 1.
    """

    name: RowOptimizer = "rowwise_adagrad"
    learning_rate: float = 0.1
    eps: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An id space. `rows == 0`: the table is dynamic, a row is made when an id is first seen.

    Fixed table, int ids: row = id, checked against [0, rows) or taken modulo rows (`out_of_range`).
    Fixed table, string ids: row = XXH64(utf-8, seed 0) as uint64, modulo rows.
    Dynamic table: the key is the int64 id itself, or XXH64 reinterpreted as int64.
    """

    name: str
    index: int  # position in the job's list of tables; the wire and the arena use it
    features: tuple[str, ...]
    key_kind: KeyKind
    rows: int  # 0: dynamic
    out_of_range: OutOfRange = "error"
    admit_after: int = 1  # dynamic tables: an id gets its row when it is seen for the n-th time
    evict_after_samples: int = 0  # dynamic tables: a row is dropped after n samples without its id; 0: never

    @property
    def is_dynamic(self) -> bool:
        return self.rows == 0


class EmbeddingSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of row vectors over a table's ids. `name` is the name of the torchrec table."""

    name: str
    index: int
    table: int  # TableSpec.index
    module: str  # path of the collection in the model, e.g. "sparse_arch.embedding_bag_collection"
    kind: Literal["bag", "sequence"]  # EmbeddingBagCollection | EmbeddingCollection
    features: tuple[str, ...]
    dim: int
    pooling: Pooling
    optimizer: RowOptimizerSpec
    init_low: float
    init_high: float
    precision: Precision = "float32"  # of the rows; the state of the optimizer is always float32

    @property
    def bytes_per_element(self) -> int:
        """Size of one element of a row."""
        return 2 if self.precision == "bfloat16" else 4

    @property
    def padded_dim(self) -> int:
        """`dim` rounded up to a multiple of 4, because kernels compute in vectors of 4 and 16 elements."""
        return (self.dim + 3) // 4 * 4

    @property
    def state_floats_per_row(self) -> int:
        match self.optimizer.name:
            case "sgd":
                return 0
            case "adagrad":
                return self.padded_dim
            case "rowwise_adagrad":
                return 1
            case "adam":
                return 2 * self.padded_dim + 1

    @property
    def kernel_learning_rate(self) -> float:
        """The learning rate for kernels. Row-wise Adagrad's kernel divides by padded_dim instead of `dim` in its mean;
        the padding elements are zero. So the rate is scaled:

        s_padded = s * dim / padded_dim, so lr * sqrt(dim / padded_dim) / sqrt(s_padded) = lr / sqrt(s).
        """
        if self.optimizer.name == "rowwise_adagrad" and self.padded_dim != self.dim:
            return self.optimizer.learning_rate * float((self.dim / self.padded_dim) ** 0.5)
        return self.optimizer.learning_rate


class DenseTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dense parameter, or one floating-point buffer. `offset`: its first float32 element in the flat vector.
    `is_frozen`: a parameter that gets no gradient, and that no weight decay changes."""

    name: str
    shape: tuple[int, ...]
    offset: int
    is_buffer: bool = False
    is_frozen: bool = False

    @property
    def elements(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total


class DenseSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The flat dense vector: first `parameters` elements that get gradients, then buffers; `elements` in total."""

    tensors: tuple[DenseTensor, ...]
    parameters: int
    elements: int

    @property
    def frozen(self) -> tuple[tuple[int, int], ...]:
        """The ranges [start, stop) of frozen parameters in the vector."""
        return tuple((one.offset, one.offset + one.elements) for one in self.tensors if one.is_frozen)


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a model that the arena, the PS and the export use. `list_features`: the categorical columns
    that hold lists of ids; None: not known, as in checkpoints of earlier versions."""

    tables: tuple[TableSpec, ...]
    embeddings: tuple[EmbeddingSpec, ...]
    dense: DenseSpec
    num_dense_features: int
    num_labels: int
    list_features: tuple[str, ...] | None = None

    def is_same_model(self, other: ModelSpec) -> bool:
        """Whether both describe one model. A column may hold lists in one and single ids in the other: its rows are
        the same. A parameter may be frozen in one and trained in the other: it is the same parameter."""
        return self._compared == msgspec.structs.replace(other, list_features=self.list_features)._compared

    @property
    def _compared(self) -> ModelSpec:
        tensors = tuple(msgspec.structs.replace(one, is_frozen=False) for one in self.dense.tensors)
        return msgspec.structs.replace(self, dense=msgspec.structs.replace(self.dense, tensors=tensors))

    def embeddings_of(self, table_index: int) -> tuple[EmbeddingSpec, ...]:
        return tuple(e for e in self.embeddings if e.table == table_index)

    def initial_name(self, embedding: EmbeddingSpec) -> str:
        """What the initial weights of an embedding are drawn for: its name, and its module if the name is not unique.
        Two embeddings of one name must not begin with equal rows."""
        is_unique = sum(e.name == embedding.name for e in self.embeddings) == 1
        return embedding.name if is_unique else f"{embedding.module}/{embedding.name}"

    @property
    def sequence_features(self) -> frozenset[str]:
        """The features that an `EmbeddingCollection` reads: their ids keep their places, also ids without a row."""
        return frozenset(feature for e in self.embeddings if e.kind == "sequence" for feature in e.features)


def model_difference(saved: ModelSpec, present: ModelSpec) -> str:
    """The first difference between two models, in words."""
    for name, before, now in (
        ("tables", saved.tables, present.tables),
        ("embeddings", saved.embeddings, present.embeddings),
        ("dense tensors", saved.dense.tensors, present.dense.tensors),
    ):
        if len(before) != len(now):
            return f"{len(before)} {name} instead of {len(now)}"
        for old, new in zip(before, now, strict=True):
            if old != new:
                return f"{name}: {old} instead of {new}"
    return "other columns or labels"
