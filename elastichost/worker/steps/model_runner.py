"""Calls the user's model: the forward pass and the loss of a training step, and the scores of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional
from torchrec.datasets.utils import Batch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.errors import ElastichostError, ModelError
from elastichost.gpu.step_inputs import StepInputs
from elastichost.specs import Precision
from elastichost.user_model.build import user_error
from elastichost.worker.access.rows import PreparedBatch

__all__ = ["ModelRunner", "Scores"]

Outputs = Literal["logits", "probabilities", "loss"]
_TINY = 1e-7


@dataclass(frozen=True, slots=True)
class Scores:
    """float32 [size * labels] logits of one batch."""

    logits: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Arguments:
    """What the model and its loss receive for one batch."""

    dense: torch.Tensor
    sparse: KeyedJaggedTensor
    labels: torch.Tensor
    weights: torch.Tensor | None


class ModelRunner:
    """Calls the user's model in the form that `model.outputs` of the job file names.

    logits:        forward(dense [B, n], kjt) -> [B] or [B, labels]; the loss is binary cross-entropy on logits
    probabilities: the same, outputs inside [0, 1]
    loss:          forward(torchrec Batch) -> (loss, ...) as torchrec's DLRMTrain; the second item may hold
                   (detached loss, logits, labels), which evaluation needs

    With precision "bfloat16" the model runs under `torch.autocast`; the loss is computed in float32 all the same.
    sparse_device: where the KeyedJaggedTensor lies; on a GPU only if all collections are looked up there.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Sequence[str],
        outputs: Outputs,
        device: torch.device,
        precision: Precision = "float32",
        sparse_device: torch.device = torch.device("cpu"),  # noqa: B008 - immutable
    ) -> None:
        self._model = model
        self._features = list(features)
        self._outputs = outputs
        self._device, self._sparse_device = device, sparse_device
        self._autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
        self._checked_range = outputs != "logits"
        self._has_worked = False
        self.warnings: list[str] = []

    def loss(self, batch: PreparedBatch) -> torch.Tensor:
        """Mean loss of the batch (with sample weights the weighted mean), a scalar with its autograd graph."""
        return self._loss(self._arguments(batch))

    def loss_of(self, inputs: StepInputs) -> torch.Tensor:
        """As `loss`, for inputs that lie on the model's device already. Reads no value of them on the host."""
        sparse = KeyedJaggedTensor(
            keys=self._features, values=inputs.values, offsets=inputs.offsets, stride=inputs.size
        )
        return self._loss(_Arguments(inputs.dense, sparse, inputs.labels, inputs.weights))

    def _loss(self, given: _Arguments) -> torch.Tensor:
        if self._outputs == "loss":
            if given.weights is not None:
                raise ModelError('data.weight needs model.outputs = "logits" or "probabilities"')
            return self._call_loss(given)[0]
        output = self._forward(given)
        target = given.labels.view(output.shape)
        weight = None if given.weights is None else _broadcast(given.weights, output)
        if self._outputs == "probabilities":
            clipped = output.clamp(_TINY, 1 - _TINY)
            losses = functional.binary_cross_entropy(clipped, target, weight=weight, reduction="sum")
        else:
            self._warn_if_probabilities(output)
            losses = functional.binary_cross_entropy_with_logits(output, target, weight=weight, reduction="sum")
        total = output.numel() if weight is None else weight.sum().clamp_min(_TINY)
        return losses / total

    def scores(self, batch: PreparedBatch) -> Scores:
        """Logits of the batch, computed without an autograd graph. Probabilities are converted to logits."""
        given = self._arguments(batch)
        with torch.no_grad():
            output = self._call_loss(given)[1] if self._outputs == "loss" else self._forward(given)
            if self._outputs == "probabilities":
                output = torch.logit(output.clamp(_TINY, 1 - _TINY))
        return Scores(output.detach().reshape(-1).to("cpu", torch.float32).numpy())

    def train(self, mode: bool) -> None:
        self._model.train(mode)

    def _arguments(self, batch: PreparedBatch) -> _Arguments:
        samples, where = batch.samples, self._sparse_device
        sparse = KeyedJaggedTensor(
            keys=self._features,
            values=torch.from_numpy(batch.values).to(where),
            lengths=torch.from_numpy(batch.lengths).to(where),
            offsets=torch.from_numpy(batch.offsets).to(where),
            stride=samples.size,
            length_per_key=batch.length_per_key,
        )
        labels, dense = (torch.from_numpy(array).to(self._device) for array in (samples.labels, samples.dense))
        weights = None if samples.weights is None else torch.from_numpy(samples.weights).to(self._device)
        return _Arguments(dense, sparse, labels, weights)

    def _call(self, *arguments: object) -> Any:
        """Calls the model. A failure at the first batch is an error of the model: it ends the job with a ModelError.

        A later failure is re-raised: it comes from a sample, which the ledger finds by elimination (quarantine).
        """
        try:
            with self._autocast:
                result = self._model(*arguments)
        except ElastichostError:
            raise
        except Exception as error:
            if self._has_worked:
                raise
            raise user_error("the model's forward failed at its first batch", error) from error
        self._has_worked = True
        return result

    def _forward(self, given: _Arguments) -> torch.Tensor:
        output = self._call(given.dense, given.sparse)
        if not _fits(output, given.labels):
            shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
            raise ModelError(
                f"the model returned {shape} for a batch of {len(given.labels)} samples with "
                f"{given.labels.shape[1]} label(s)",
                hint="forward(dense, kjt) must return logits [B], or [B, labels] for several labels",
            )
        assert isinstance(output, torch.Tensor)
        return output.float()

    def _call_loss(self, given: _Arguments) -> tuple[torch.Tensor, torch.Tensor]:
        target = given.labels.squeeze(1) if given.labels.shape[1] == 1 else given.labels
        result = self._call(Batch(dense_features=given.dense, sparse_features=given.sparse, labels=target))
        try:
            loss, (_, logits, _) = result
        except (TypeError, ValueError) as error:
            raise ModelError(
                'with model.outputs = "loss", forward(Batch) must return (loss, (loss, logits, labels)) as '
                "torchrec's DLRMTrain does",
            ) from error
        return loss, logits

    def _warn_if_probabilities(self, output: torch.Tensor) -> None:
        if self._checked_range:
            return
        self._checked_range = True
        low, high = (float(edge) for edge in torch.aminmax(output.detach()))
        if low >= 0.0 and high <= 1.0 and output.numel() >= 32:
            self.warnings.append(
                f"the model's outputs of the first batch lie between {low:.3f} and {high:.3f}: if they are "
                'probabilities, set model.outputs = "probabilities"'
            )


def _fits(output: object, labels: torch.Tensor) -> bool:
    """Whether a model's output has one logit for each label [B, labels]. With several labels its first dimension must
    be that of the samples: as [labels, B] the logits of one sample would be compared with labels of others."""
    if not isinstance(output, torch.Tensor) or output.numel() != labels.numel():
        return False
    return labels.shape[1] == 1 or output.shape[:1] == labels.shape[:1]


def _broadcast(weights: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return weights.view(-1, *([1] * (output.dim() - 1))).expand_as(output)
