from __future__ import annotations

from typing import Any

import pytest
import torch

from elastichost.arena.dense.store import DenseOptimizerSpec
from elastichost.errors import ConfigError

OPTIMIZERS = {
    "adam": (DenseOptimizerSpec("adam", 0.01, weight_decay=0.1), torch.optim.Adam, {"weight_decay": 0.1}),
    "adamw": (DenseOptimizerSpec("adamw", 0.01, weight_decay=0.1), torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (DenseOptimizerSpec("adagrad", 0.01, eps=1e-10), torch.optim.Adagrad, {"eps": 1e-10}),
    "sgd": (DenseOptimizerSpec("sgd", 0.01), torch.optim.SGD, {}),
    "momentum": (DenseOptimizerSpec("sgd", 0.01, momentum=0.9), torch.optim.SGD, {"momentum": 0.9}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_equal_torchs(device: torch.device, name: str) -> None:
    from elastichost.gpu.dense_updates import DenseUpdate

    spec, kind, settings = OPTIMIZERS[name]
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(1500, generator=generator).to(device)
    expected = start.clone().requires_grad_()
    options: Any = {"lr": spec.learning_rate, **settings}
    reference = kind([expected], **options)
    values, gradients = start.clone(), torch.zeros_like(start)
    low = torch.zeros(1500, dtype=torch.bfloat16, device=device)
    refused = torch.zeros(1, dtype=torch.int32, device=device)
    update = DenseUpdate(spec, values, gradients, low, torch.ones(1, device=device), refused)
    for number in range(5):
        gradients.copy_(torch.randn(1500, generator=generator))
        if number == 2:  # a refused batch between the others: it must not even count as a step
            refused.fill_(1)
            update.apply()
            refused.fill_(0)
        expected.grad = gradients.clone()
        reference.step()
        update.apply()
    torch.testing.assert_close(values, expected.detach(), rtol=2e-5, atol=2e-6)
    # the interpreter cuts bits off where a GPU rounds
    torch.testing.assert_close(low.float(), values, rtol=2**-7, atol=0)
    assert int(update.step) == 5


def test_a_limit_of_the_norm_is_refused(device: torch.device) -> None:
    from elastichost.gpu.dense_updates import DenseUpdate

    vector, flag = torch.zeros(4, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(ConfigError, match="train.clip_norm = 1.0: the dense optimizer on a GPU does not clip"):
        DenseUpdate(DenseOptimizerSpec(clip_norm=1.0), vector, vector, None, vector, flag)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_element_that_is_not_finite_raises_the_flag(device: torch.device, bad: float, dtype: torch.dtype) -> None:
    from elastichost.gpu.dense_updates import flag_non_finite

    flag = torch.zeros(1, dtype=torch.int32, device=device)
    values = torch.full((9000,), 3e38, device=device).to(dtype)
    flag_non_finite(values, flag)
    assert int(flag) == 0
    values[8191] = bad
    flag_non_finite(values, flag)
    assert int(flag) == 1
