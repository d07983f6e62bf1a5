"""Loads an export, as a torchrec model or as a program of torch.export, and scores columns with it.

It is copied into every export. It needs torch, numpy, pyarrow and safetensors, and torchrec for exports that are not
programs; elastichost is not needed.

scorer = Scorer(directory)
probabilities = scorer.scores(scorer.preprocessor.prepare(pyarrow.parquet.read_table("file.parquet")))
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

try:
    from .preprocess import Prepared, Preprocessor, read_about
except ImportError:  # in an export this is no package
    from preprocess import Prepared, Preprocessor, read_about  # type: ignore[import-not-found,no-redef]

if TYPE_CHECKING:
    import pyarrow as pa
    from torchrec import KeyedJaggedTensor

__all__ = [
    "ScorableModel",
    "Scorer",
    "flat_inputs",
    "leave_last_row_out",
    "load_model",
    "load_program",
    "model_inputs",
    "sparse_of",
    "with_all_names",
]

PROGRAM = "model.pt2"
_numbers = count()


class Scorer:
    """The model of an export with its preprocessing. Raises what `load_model` and `load_program` raise, ValueError for
    an export of another version."""

    def __init__(self, directory: str | Path, *, refuse_nulls: bool = False) -> None:
        self.preprocessor = Preprocessor(directory, refuse_nulls=refuse_nulls)
        self._program: Callable[..., torch.Tensor]
        if (Path(directory) / PROGRAM).is_file():
            self._program = load_program(directory)
        else:
            model = load_model(directory)
            self._program = ScorableModel(model, self.preprocessor.features, self.preprocessor.about)

    def scores(self, prepared: Prepared) -> npt.NDArray[np.float32]:
        """The probabilities of B samples, float32 [B], or [B, labels] for several labels."""
        with torch.inference_mode():
            found: npt.NDArray[np.float32] = self._program(*flat_inputs(prepared)).numpy()
        return found


class ScorableModel(torch.nn.Module):
    """A model with plain tensors as inputs and probabilities as output: what `model.pt2` is made of.

    about: the content of `preprocess.json`."""

    def __init__(self, model: torch.nn.Module, features: Collection[str], about: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self._features = tuple(features)
        self._outputs, self._labels = about["model"]["outputs"], about["num_labels"]

    def forward(
        self, dense: torch.Tensor, values: tuple[torch.Tensor, ...], offsets: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Probabilities float32 [B], or [B, labels], of the inputs that `flat_inputs` makes."""
        size = dense.shape[0]
        sparse = sparse_of(self._features, values, offsets, size)
        if self._outputs == "loss":
            from torchrec.datasets.utils import Batch

            labels = torch.zeros((size, self._labels) if self._labels > 1 else (size,))
            output = self.model(Batch(dense_features=dense, sparse_features=sparse, labels=labels))[1][1]
        else:
            output = self.model(dense, sparse)
        output = output.reshape((size, self._labels) if self._labels > 1 else (size,)).float()
        return output if self._outputs == "probabilities" else torch.sigmoid(output)


def flat_inputs(
    prepared: Prepared,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """(dense float32 [B, numbers], values, offsets). For each feature: values int64 [n], the rows of its table; offsets
    int64 [B + 1]: sample i has values[offsets[i]:offsets[i + 1]]."""
    offsets = tuple(torch.from_numpy(np.concatenate(([0], np.cumsum(lengths)))) for lengths in prepared.lengths)
    return torch.from_numpy(prepared.dense), tuple(map(torch.from_numpy, prepared.rows)), offsets


def model_inputs(preprocessor: Preprocessor, table: pa.Table) -> tuple[torch.Tensor, KeyedJaggedTensor]:
    """(dense float32 [B, numbers], sparse) for the B rows of `table`: what the model of `load_model` takes. Raises
    ColumnError."""
    dense, values, offsets = flat_inputs(preprocessor.prepare(table))
    return dense, sparse_of(preprocessor.features, values, offsets, dense.shape[0])


def sparse_of(
    features: Collection[str], values: tuple[torch.Tensor, ...], offsets: tuple[torch.Tensor, ...], size: int
) -> KeyedJaggedTensor:
    """The ids of `size` samples, from values and offsets of each feature as `flat_inputs` makes them."""
    from torchrec import JaggedTensor, KeyedJaggedTensor

    # with the parts given, torchrec splits nothing: a program with a split by sizes needs fbgemm
    lengths = [bounds[1:] - bounds[:-1] for bounds in offsets]
    parts = zip(features, values, lengths, offsets, strict=True)
    return KeyedJaggedTensor(
        keys=list(features),
        values=torch.cat(values),
        lengths=torch.cat(lengths),
        stride=size,
        length_per_key=[rows.shape[0] for rows in values],
        jt_dict={name: JaggedTensor(values=v, lengths=n, offsets=o) for name, v, n, o in parts},
    )


def load_program(directory: str | Path) -> Callable[..., torch.Tensor]:
    """The program in `model.pt2`: (dense, values, offsets) -> probabilities, see `flat_inputs`. Raises ImportError when
    the model uses operators of fbgemm, and it is not installed."""
    if read_about(directory)["model"]["needs_fbgemm"]:
        importlib.import_module("fbgemm_gpu")  # registers them
    program: Callable[..., torch.Tensor] = torch.export.load(Path(directory) / PROGRAM).module()
    return program


def load_model(directory: str | Path) -> torch.nn.Module:
    """The torchrec model with its trained weights, in evaluation mode. Raises ValueError for an export of another
    version, and when the weights do not fit the model's code; what that code raises; OSError, ImportError (there is no
    torchrec)."""
    from torchrec import EmbeddingBagConfig, PoolingType

    directory = Path(directory).resolve()
    about = read_about(directory)
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
    state = with_all_names(model, load_file(directory / "model.safetensors"))
    loaded = model.load_state_dict(state, strict=False, assign=True)
    own = model.state_dict()  # integer tensors are constants of the model's code; they are not exported
    missing = [name for name in loaded.missing_keys if own[name].is_floating_point()]
    if missing or loaded.unexpected_keys:
        raise ValueError(
            f"model.safetensors does not fit the model's code: {missing} are missing, {loaded.unexpected_keys} are not "
            "in the model"
        )
    leave_last_row_out(model, {name for table in about["tables"] for name in table["sequence_features"]})
    return model.eval()


def with_all_names(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """`state` with every name of its tensors. A weight that two layers share, or one of a module that the model has
    under two names, is in a checkpoint once, under its first name; the model's state dict has it under each."""
    own = model.state_dict(keep_vars=True)  # the tensors themselves: a shared one is the same object under each name
    stored = {id(own[name]): tensor for name, tensor in state.items() if name in own}
    shared = {name: stored[id(tensor)] for name, tensor in own.items() if id(tensor) in stored}
    return {**shared, **state}


def leave_last_row_out(model: torch.nn.Module, sequence_features: Collection[str]) -> None:
    """Makes bags of these features ignore the last row of their table, which is for ids without a row in sequences."""
    from torchrec import EmbeddingBagCollection

    for module in model.modules():
        if isinstance(module, EmbeddingBagCollection):
            for config in module.embedding_bag_configs():
                if not set(config.feature_names).isdisjoint(sequence_features):
                    module.embedding_bags[config.name].padding_idx = config.num_embeddings - 1


def _source_module(directory: Path, model: dict[str, Any]) -> Any:
    if not model["source"] or _is_package_of_user(model):
        return importlib.import_module(model["module"])
    file, name = directory / model["source"], f"exported_model_{next(_numbers)}"
    parts = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=parts)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_package_of_user(model: dict[str, Any]) -> bool:
    """Whether the model's code is a module with packages, which lie in `source/`: it is imported by its whole name."""
    return bool(model["module"]) and model["source"].startswith("source/")


@contextmanager
def _source_path(directory: Path, model: dict[str, Any]) -> Iterator[None]:
    """Within this context, the model's code imports the modules and packages that were exported with it, and none of
    the same name that an export before it brought along. The code of an installed package finds nothing of the
    export."""
    if not model["source"]:
        yield
        return
    folder = directory / "source" if _is_package_of_user(model) else (directory / model["source"]).parent
    beside = {path.stem for path in folder.iterdir()}
    names = [name for name in sys.modules if name.partition(".")[0] in beside]
    before = {name: sys.modules.pop(name) for name in names}
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        taken = {name.partition(".")[0] for name in before} & sys.modules.keys()
        sys.modules.update({name: one for name, one in before.items() if name.partition(".")[0] not in taken})


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
