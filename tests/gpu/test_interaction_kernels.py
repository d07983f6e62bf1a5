from __future__ import annotations

import pytest
import torch
from torchrec.models.dlrm import InteractionArch


@pytest.mark.parametrize(("fields", "dim", "samples"), [(26, 16, 9), (5, 32, 5), (3, 64, 1), (40, 16, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_and_gradients_equal_torchrecs(
    device: torch.device, fields: int, dim: int, samples: int, dtype: torch.dtype
) -> None:
    from elastichost.gpu.interaction_kernels import interact

    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(samples, dim, generator=generator).to(device, dtype)
    sparse = torch.randn(samples, fields, dim, generator=generator).to(device, dtype)
    plain = [one.double().requires_grad_() for one in (dense, sparse)]
    expected = InteractionArch(fields)(*plain)
    gradient = torch.randn(expected.shape, generator=generator).to(device, dtype)
    expected.backward(gradient.double())
    mine = [one.detach().requires_grad_() for one in (dense, sparse)]
    output = interact(*mine)
    output.backward(gradient)
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 0.2}
    torch.testing.assert_close(output.double(), expected.detach(), **tolerance)
    for found, wanted in zip(mine, plain, strict=True):
        assert found.grad is not None and wanted.grad is not None
        torch.testing.assert_close(found.grad.double(), wanted.grad, **tolerance)
