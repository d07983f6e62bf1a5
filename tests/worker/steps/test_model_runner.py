"""Calls of the user's model: its loss, its scores, and the errors for invalid outputs and failures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from elastichost.datasets.api import SampleBatch
from elastichost.errors import ModelError
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import NOTHING_PULLED
from elastichost.worker.steps.model_runner import ModelRunner, Outputs

SIZE = 40


def batch(labels: int = 1, *, weights: bool = False) -> PreparedBatch:
    generator = np.random.default_rng(0)
    samples = SampleBatch(
        unit=0,
        start=0,
        stop=SIZE,
        size=SIZE,
        skipped=0,
        dense=generator.normal(size=(SIZE, 3)).astype(np.float32),
        keys=np.arange(SIZE),
        lengths=np.ones(SIZE, dtype=np.int32),
        labels=generator.integers(0, 2, (SIZE, labels)).astype(np.float32),
        weights=generator.uniform(0.1, 2, SIZE).astype(np.float32) if weights else None,
    )
    ones, offsets = np.ones(SIZE, dtype=np.int64), np.arange(SIZE + 1)
    return PreparedBatch(samples, 1, 0, samples.keys, ones, offsets, [SIZE], NOTHING_PULLED, 0.0)


class Linear(nn.Module):
    """A linear model with each kind of output: logits, probabilities, or torchrec's loss tuple."""

    def __init__(self, outputs: Outputs, labels: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, labels)
        self.outputs = outputs
        self.fail_at = -1
        self.calls = 0

    def forward(self, *arguments):  # type: ignore[no-untyped-def]
        self.calls += 1
        if self.calls == self.fail_at:
            raise RuntimeError("shapes do not fit")
        dense = arguments[0].dense_features if self.outputs == "loss" else arguments[0]
        logits = self.layer(dense).squeeze(1)
        if self.outputs == "loss":
            labels = arguments[0].labels
            loss = functional.binary_cross_entropy_with_logits(logits, labels)
            return loss, (loss.detach(), logits, labels)
        return torch.sigmoid(logits) if self.outputs == "probabilities" else logits


def runner(model: nn.Module, outputs: Outputs) -> ModelRunner:
    return ModelRunner(model, ["a"], outputs, torch.device("cpu"))


def test_the_three_kinds_of_outputs_give_one_loss_and_one_score() -> None:
    losses, scores = [], []
    for outputs in ("logits", "probabilities", "loss"):
        run = runner(Linear(outputs), outputs)  # type: ignore[arg-type]
        losses.append(run.loss(batch()).item())
        scores.append(run.scores(batch()).logits)
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], atol=1e-5)


def test_the_loss_is_a_weighted_mean() -> None:
    model, prepared = Linear("logits"), batch(weights=True)
    samples = prepared.samples
    logits = model(torch.from_numpy(samples.dense)).detach().numpy()
    single = np.log1p(np.exp(-np.where(samples.labels[:, 0] == 1, logits, -logits)))
    assert samples.weights is not None
    expected = (single * samples.weights).sum() / samples.weights.sum()
    assert runner(model, "logits").loss(prepared).item() == pytest.approx(float(expected), rel=1e-5)


def test_several_labels_are_averaged() -> None:
    model, prepared = Linear("logits", labels=2), batch(labels=2)
    expected = functional.binary_cross_entropy_with_logits(
        model(torch.from_numpy(prepared.samples.dense)), torch.from_numpy(prepared.samples.labels)
    )
    run = runner(model, "logits")
    assert run.loss(prepared).item() == pytest.approx(expected.item(), rel=1e-6)
    assert run.scores(prepared).logits.shape == (2 * SIZE,)


def test_probabilities_given_as_logits_are_warned_of() -> None:
    run = runner(Linear("probabilities"), "logits")
    run.loss(batch())
    assert "probabilities" in run.warnings[0]


def test_a_wrong_shape_is_a_model_error_that_names_the_shape() -> None:
    with pytest.raises(ModelError, match=r"\(40, 2\) for a batch of 40 samples with 1 label"):
        runner(Linear("logits", labels=2), "logits").loss(batch())


def test_logits_of_several_labels_in_the_other_order_are_a_model_error() -> None:
    """As many numbers, but those of one sample would be compared with the labels of others."""

    class Transposed(nn.Module):
        def forward(self, dense: torch.Tensor, sparse: object) -> torch.Tensor:
            return torch.stack([dense[:, 0], dense[:, 1]])

    with pytest.raises(ModelError, match=r"\(2, 40\) for a batch of 40 samples with 2 label"):
        runner(Transposed(), "logits").loss(batch(labels=2))


def test_a_forward_that_fails_at_once_is_a_model_error_with_its_traceback() -> None:
    model = Linear("logits")
    model.fail_at = 1
    with pytest.raises(ModelError, match="first batch") as failure:
        runner(model, "logits").loss(batch())
    assert "shapes do not fit" in failure.value.message
    assert 'raise RuntimeError("shapes do not fit")' in failure.value.traceback_text


def test_a_forward_that_fails_later_raises_its_own_error() -> None:
    model = Linear("logits")
    model.fail_at = 2
    run = runner(model, "logits")
    run.loss(batch())
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run.loss(batch())
