from __future__ import annotations

import numpy as np
import pytest
import torch

from elastichost.arena.rows.bag_kernels import pool_bags as pool_on_cpu
from tests.gpu.calls import random_case


@pytest.mark.parametrize(
    ("dims", "longest_bag", "is_mean"), [([16] * 3, 1, False), ([16, 8, 3], 3, False), ([64, 32], 4, True)]
)
def test_pooled_vectors_have_the_bits_of_the_cpu(
    device: torch.device, dims: list[int], longest_bag: int, is_mean: bool
) -> None:
    from elastichost.gpu.bag_kernels import pool_bags
    from elastichost.gpu.compiled import padded_width

    case = random_case(
        dims=dims,
        table_rows=[50, 1000, 7][: len(dims)],
        size=70,
        longest_bag=longest_bag,
        is_mean=is_mean,
        optimizers=[2] * len(dims),
    )
    expected = np.zeros(case.size * case.width, np.float32)
    pool_on_cpu(case.rows, case.entries, case.values, case.offsets, expected)
    rows = torch.from_numpy(case.rows).to(device)
    output = torch.full((case.size * case.width,), torch.nan, device=device)
    arrays = [torch.from_numpy(array).to(device) for array in (case.entries, case.values, case.offsets)]
    pool_bags(rows.data_ptr(), *arrays, output, case.size, padded_width(max(case.padded)))
    np.testing.assert_array_equal(output.cpu().numpy(), expected)


def test_row_numbers_may_be_int32(device: torch.device) -> None:
    from elastichost.gpu.bag_kernels import pool_bags

    case = random_case(dims=[16], table_rows=[40], size=9, optimizers=[0])
    rows = torch.from_numpy(case.rows).to(device)
    entries = torch.from_numpy(case.entries).to(device)
    outputs = []
    for kind in (torch.int32, torch.int64):
        values, offsets = (torch.from_numpy(a).to(device, kind) for a in (case.values, case.offsets))
        outputs.append(torch.zeros(9 * 16, device=device))
        pool_bags(rows.data_ptr(), entries, values, offsets, outputs[-1], 9, 16)
    assert torch.equal(*outputs)
