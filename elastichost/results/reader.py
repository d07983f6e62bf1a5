"""Loads an exported model and prepares Parquet tables for it. It needs torch, torchrec, safetensors and pyarrow only.

model = load_model(directory)
dense, sparse = Preprocessor(directory).inputs(pyarrow.parquet.read_table("file.parquet"))
logits = model(dense, sparse)
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors.torch import load_file
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType

__all__ = ["ColumnError", "IdTable", "Preprocessor", "leave_last_row_out", "load_model", "xxh64"]

Int64Array = npt.NDArray[np.int64]


class ColumnError(ValueError):
    """A column of the table is missing, or does not fit the data that the model was trained on. `column`: its name."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column}: {problem}")
        self.column = column


def load_model(directory: str | Path) -> torch.nn.Module:
    """The model with its trained weights, in evaluation mode."""
    directory = Path(directory).resolve()
    about = _about(directory)
    configs = [
        EmbeddingBagConfig(
            name=table["torchrec_name"],
            embedding_dim=table["dim"],
            num_embeddings=table["rows"],
            feature_names=list(table["features"]),
            pooling=PoolingType[table["pooling"].upper()],
            init_fn=lambda weights: None,
        )
        for table in about["tables"]
    ]
    labels = {"num_labels": about["num_labels"]} if about["num_labels"] > 1 else {}
    with _source_path(directory, about["model"]), _no_random_tables():
        build = getattr(_source_module(directory, about["model"]), about["model"]["function"])
        model: torch.nn.Module = build(configs, about["num_dense"], **about["model"]["args"], **labels)
    loaded = model.load_state_dict(load_file(directory / "model.safetensors"), strict=False, assign=True)
    own = model.state_dict()  # integer tensors are constants of the model's code; they are not exported
    missing = [name for name in loaded.missing_keys if own[name].is_floating_point()]
    if missing or loaded.unexpected_keys:
        raise ValueError(
            f"model.safetensors does not fit the model's code: {missing} are missing, {loaded.unexpected_keys} are not "
            "in the model"
        )
    leave_last_row_out(model, {name for table in about["tables"] for name in table["sequence_features"]})
    return model.eval()


def leave_last_row_out(model: torch.nn.Module, sequence_features: Collection[str]) -> None:
    """Makes bags of these features ignore the last row of their table, which is for ids without a row in sequences."""
    for module in model.modules():
        if isinstance(module, EmbeddingBagCollection):
            for config in module.embedding_bag_configs():
                if not set(config.feature_names).isdisjoint(sequence_features):
                    module.embedding_bags[config.name].padding_idx = config.num_embeddings - 1


class Preprocessor:
    """Turns the columns of a table into the inputs of the model, by the rules of `preprocess.json`."""

    def __init__(self, directory: str | Path) -> None:
        self.about = _about(Path(directory))
        ids_file = Path(directory) / "ids.safetensors"
        ids = load_file(ids_file) if ids_file.is_file() else {}
        self.tables = {
            feature: IdTable(
                table["rows"],
                is_string=table["key_kind"] == "string",
                modulo=table["rule"] == "modulo",
                ids=ids[table["name"]].numpy() if table["rule"] == "dynamic" else None,
                keeps_places=feature in table["sequence_features"],
            )
            for table in self.about["tables"]
            for feature in table["features"]
        }

    def inputs(self, table: pa.Table) -> tuple[torch.Tensor, KeyedJaggedTensor]:
        """(dense float32 [B, num_dense], sparse) for the B rows of `table`.

        Ids are cast to the kind of the training data: text of an integer to an integer, or integers to text. Raises
        ColumnError (a ValueError) for a column that is missing or cannot be cast exactly, and for ids out of range.
        """
        wanted = (*self.about["dense"], *self.about["features"])
        if missing := [name for name in wanted if name not in table.column_names]:
            raise ColumnError(missing[0], f"is missing; the table has {', '.join(table.column_names)}")
        dense = np.empty((table.num_rows, len(self.about["dense"])), dtype=np.float32)
        for number, name in enumerate(self.about["dense"]):
            try:
                values = table.column(name).cast(pa.float64()).to_numpy()  # null becomes NaN
            except pa.ArrowException as error:
                raise ColumnError(name, f"{table.column(name).type} cannot be cast to numbers ({error})") from error
            if self.about["dense_transform"] == "log1p":
                values = np.log1p(np.maximum(values, 0))
            dense[:, number] = np.where(np.isnan(values), self.about["null_fill"], values)
        rows, lengths = [], []
        for feature in self.about["features"]:
            column = table.column(feature).combine_chunks()
            found, sample = _ids(column, feature, is_string=self.tables[feature].is_string)
            row = self.tables[feature].rows_of(found)
            if (row == IdTable.OUT_OF_RANGE).any():
                raise ColumnError(feature, f"id {found[row == IdTable.OUT_OF_RANGE][0]} is out of range")
            rows.append(row[row >= 0])  # an id that was never trained is left out of its bag
            lengths.append(np.bincount(sample[row >= 0], minlength=table.num_rows))
        return torch.from_numpy(dense), KeyedJaggedTensor(
            keys=list(self.about["features"]),
            values=torch.from_numpy(np.concatenate(rows)),
            lengths=torch.from_numpy(np.concatenate(lengths).astype(np.int32)),
        )


class IdTable:
    """Maps the keys of one feature to rows of its table. `ids`: int64, the key of each row of a dynamic table.
    `keeps_places`: ids without a row get the last row of the table, which is zeros."""

    UNKNOWN, OUT_OF_RANGE = -1, -2

    def __init__(self, rows: int, *, is_string: bool, modulo: bool, ids: Int64Array | None, keeps_places: bool) -> None:
        self.rows, self.is_string, self.modulo = rows, is_string, modulo
        self.row_of_unknown = rows - 1 if keeps_places else self.UNKNOWN
        self.order = None if ids is None else np.argsort(ids)
        self.sorted_ids = None if ids is None or self.order is None else ids[self.order]

    def rows_of(self, keys: Int64Array) -> Int64Array:
        """int64 [len(keys)]: the row of each key, UNKNOWN (dynamic tables), or OUT_OF_RANGE (tables of fixed size)."""
        if self.order is not None and self.sorted_ids is not None:
            if not len(self.order):
                return np.full(len(keys), self.row_of_unknown, dtype=np.int64)
            place = np.minimum(np.searchsorted(self.sorted_ids, keys), len(self.order) - 1)
            return np.where(self.sorted_ids[place] == keys, self.order[place], self.row_of_unknown)
        if self.is_string:
            return (keys.view(np.uint64) % np.uint64(self.rows)).astype(np.int64)
        if self.modulo:
            return keys % self.rows
        return np.where((keys >= 0) & (keys < self.rows), keys, self.OUT_OF_RANGE)


def _ids(column: pa.Array, name: str, *, is_string: bool) -> tuple[Int64Array, Int64Array]:
    """(keys, sample of each key), both int64 [n], of a column of ints, strings or lists of them. Nulls have no key.
    Ints are never converted to floats. is_string: the model was trained on text. Raises ColumnError when the column
    cannot be cast to the kind of the training data."""
    sample = np.arange(len(column))
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        sample = np.repeat(sample, column.value_lengths().fill_null(0).to_numpy())
        column = column.flatten()
    sample = sample[column.is_valid().to_numpy(zero_copy_only=False)]
    column = column.drop_null()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not is_string:
        whole = _integers(column, name).to_numpy(zero_copy_only=False)
        return (whole.view(np.int64) if whole.dtype == np.uint64 else whole.astype(np.int64)), sample
    words = _words(column, name).dictionary_encode()
    hashes = np.array([xxh64(word) for word in words.dictionary.to_pylist()], dtype=np.uint64).view(np.int64)
    return hashes[words.indices.to_numpy(zero_copy_only=False)], sample


def _integers(column: pa.Array, name: str) -> pa.Array:
    """Ids for a table that was trained on integers: integers unchanged, and text of integers as integers."""
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column
    if _is_text(column.type):
        words = column.cast(pa.string())
        # "007" is refused, because it was another key than "7"
        whole = pc.match_substring_regex(words, r"^(0|-?[1-9][0-9]*)$")
        if not pc.all(whole).as_py():
            odd = words.filter(pc.invert(whole))[0].as_py()
            raise ColumnError(name, f"{odd!r} is not an integer; the model was trained on integers")
        column = words
    try:
        return column.cast(pa.int64())
    except pa.ArrowException as error:
        raise ColumnError(
            name, f"{column.type} cannot be cast to integers; the model was trained on integers ({error})"
        ) from error


def _words(column: pa.Array, name: str) -> pa.Array:
    """Ids for a table that was trained on text: text unchanged, and integers as decimal text."""
    if _is_text(column.type):
        return column
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise ColumnError(
            name, f"{column.type} does not hold text; the model was trained on text: write the column as text"
        )
    return column.cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in kinds


def _about(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "preprocess.json").read_text(encoding="utf-8"))
    return content


def _source_module(directory: Path, model: dict[str, Any]) -> Any:
    if not model["source"]:
        return importlib.import_module(model["module"])
    file, name = directory / model["source"], f"exported_model_{abs(hash(str(directory)))}"
    parts = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=parts)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _source_path(directory: Path, model: dict[str, Any]) -> Iterator[None]:
    """Within this context, the model's code can import the modules beside its file."""
    sys.path.insert(0, str((directory / model["source"]).parent))
    try:
        yield
    finally:
        del sys.path[0]


@contextmanager
def _no_random_tables() -> Iterator[None]:
    """Within this context, new tables are not filled with random numbers: that takes long, and the trained weights
    replace them at once."""
    kinds: tuple[Any, ...] = (torch.nn.EmbeddingBag, torch.nn.Embedding)
    resets = [kind.reset_parameters for kind in kinds]
    for kind in kinds:
        kind.reset_parameters = lambda self: None
    try:
        yield
    finally:
        for kind, reset in zip(kinds, resets, strict=True):
            kind.reset_parameters = reset


def xxh64(text: str | bytes) -> int:
    """XXH64 (seed 0) of UTF-8 bytes. The `xxhash` package is used when it is installed, because it is much faster."""
    data = text.encode() if isinstance(text, str) else text
    try:
        import xxhash
    except ImportError:
        return _xxh64(data)
    return int(xxhash.xxh64_intdigest(data))


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5, _M = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, (1 << 64) - 1


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _M


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _M, 31) * _P1 & _M


def _xxh64(data: bytes) -> int:
    at, total = 0, _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _M, _P2, 0, -_P1 & _M]
        for at in range(0, len(data) - 31, 32):
            words = (int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4))
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        at, total = at + 32, sum(map(_rotate, lanes, (1, 7, 12, 18))) & _M
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _M
    total = (total + len(data)) & _M
    while len(data) - at >= 8:
        word = int.from_bytes(data[at : at + 8], "little")
        at, total = at + 8, (_rotate(total ^ _round(0, word), 27) * _P1 + _P4) & _M
    if len(data) - at >= 4:
        word = int.from_bytes(data[at : at + 4], "little")
        at, total = at + 4, (_rotate(total ^ (word * _P1 & _M), 23) * _P2 + _P3) & _M
    for byte in data[at:]:
        total = _rotate(total ^ (byte * _P5 & _M), 11) * _P1 & _M
    total = (total ^ (total >> 33)) * _P2 & _M
    total = (total ^ (total >> 29)) * _P3 & _M
    return total ^ (total >> 32)
