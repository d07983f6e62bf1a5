"""Makes one program of an exported model, with torch.export: its operations and weights, without its Python code."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim
from torch.fx.experimental import _config as symbolic_shapes

from elastichost.errors import ModelError
from elastichost.results.preprocess import Prepared, Preprocessor
from elastichost.results.reader import PROGRAM, ScorableModel, flat_inputs, load_model
from elastichost.user_model.build import user_error

__all__ = ["load_exported", "quiet", "write_program"]

SAMPLES = 5  # of the inputs that the model is traced with: a number that is no other size by chance
HINT = (
    "torch.export traces a model without running its Python code: branches on values of tensors are not possible; "
    "export it with --format torchrec"
)


def write_program(directory: Path, build: str) -> bool:
    """Writes `model.pt2` into an export of format torchrec, for any number of samples and of ids. Returns whether it
    uses operators of fbgemm. build: names the model in errors. Raises ModelError: the model cannot be loaded or traced,
    or the program has other results."""
    preprocessor = Preprocessor(directory)
    model = ScorableModel(load_exported(directory, build), preprocessor.features, preprocessor.about).eval()
    given = flat_inputs(_example(preprocessor, SAMPLES))
    any_size = {0: Dim.DYNAMIC}
    ragged = (any_size,) * len(preprocessor.features)
    try:
        # sizes of 0 and 1 are not special: a batch may have one sample, and no id at all
        with quiet(), torch.no_grad(), symbolic_shapes.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            program = torch.export.export(model, given, dynamic_shapes=(any_size, ragged, ragged), strict=False)
    except Exception as error:  # whatever the tracer says about the user's model
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(f"{build} cannot be exported as a program: {reason}", hint=HINT) from error
    with quiet():
        torch.export.save(program, directory / PROGRAM)
    _check(program, model, preprocessor, build)
    return any("fbgemm" in str(node.target) for node in program.graph.nodes)


def load_exported(directory: Path, build: str) -> torch.nn.Module:
    """The model of an export of format torchrec that is being made, as `load_model` loads it. build: names the model in
    errors. Raises ModelError: the model's code fails, or builds another model than that of the checkpoint."""
    try:
        return load_model(directory)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise user_error(
            f"{build} cannot be loaded with the weights of the checkpoint",
            error,
            hint="restore the code and the packages with which the run was trained",
        ) from error


def _check(program: torch.export.ExportedProgram, model: ScorableModel, preprocessor: Preprocessor, build: str) -> None:
    """Compares the program with the model, for numbers of samples and ids that it was not traced with."""
    module = program.module()
    for samples in (1, 2, SAMPLES + 8):
        given = flat_inputs(_example(preprocessor, samples))
        with torch.no_grad():
            try:
                found = module(*given)
            except Exception as error:
                raise user_error(f"the program of {build} fails for {samples} samples", error, hint=HINT) from error
            wanted = model(*given)
        if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=0, atol=1e-6, equal_nan=True):
            raise ModelError(f"the program of {build} has other scores than the model", hint=HINT)


def _example(preprocessor: Preprocessor, samples: int) -> Prepared:
    """Samples with 1, 2, 3, 1, ... ids of each feature, all within their tables."""
    lengths = np.arange(samples, dtype=np.int64) % 3 + 1
    dense = np.linspace(0, 1, samples * len(preprocessor.dense), dtype=np.float32).reshape(samples, -1)
    if not preprocessor.dense:
        dense = np.empty((samples, 0), dtype=np.float32)
    sizes = [preprocessor.tables[name].rows for name in preprocessor.features]
    rows = tuple(np.arange(lengths.sum(), dtype=np.int64) % size for size in sizes)
    return Prepared(dense, rows, (lengths,) * len(rows))


@contextmanager
def quiet() -> Iterator[None]:
    """Within this context, torch and torchrec print no warnings: they are for their authors."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
