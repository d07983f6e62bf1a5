from __future__ import annotations

import numpy as np
import pytest
import torch

from elastichost.arena.rows.bag_chains import UpdateWorkspace
from elastichost.arena.rows.bag_updates import ADAGRAD, ROWWISE_ADAGRAD, SGD
from elastichost.arena.rows.bag_updates import update_rows as update_on_cpu
from elastichost.arena.rows.update_rates import RATE_FIELDS
from elastichost.errors import ConfigError
from elastichost.specs import EmbeddingSpec, RowOptimizer, RowOptimizerSpec
from tests.gpu.calls import Case, random_case

CASES = {
    "one id": random_case(dims=[16] * 3, table_rows=[50, 1000, 7], size=64, optimizers=[ROWWISE_ADAGRAD] * 3),
    "lists": random_case(
        dims=[16, 8, 3], table_rows=[50, 1000, 7], size=64, longest_bag=3, optimizers=[ROWWISE_ADAGRAD, ADAGRAD, SGD]
    ),
    "means": random_case(
        dims=[32, 12], table_rows=[90, 5], size=40, longest_bag=4, is_mean=True, optimizers=[ADAGRAD, ROWWISE_ADAGRAD]
    ),
    "a row with more lookups than two levels' tile": random_case(
        dims=[16, 16], table_rows=[5000, 3], size=1500, optimizers=[ROWWISE_ADAGRAD] * 2, skew=1.2
    ),
    "wide": random_case(dims=[128], table_rows=[9], size=70, optimizers=[ROWWISE_ADAGRAD]),
}


def _gradient(case: Case) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(case.size * case.width).astype(np.float32)


def _on_cpu(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rows, state = case.rows.copy(), case.state.copy()
    workspace = UpdateWorkspace(max(case.padded))
    workspace.reserve(len(case.values))
    rates = np.zeros((len(case.rates), RATE_FIELDS), np.float32)
    rates[:, :2] = case.rates  # without weight decay, which GPUs do not have
    where = case.entries, case.updates, rates, case.values, case.offsets
    update_on_cpu(rows, state, *where, _gradient(case), *workspace.arrays(), np.uint64(1))
    return rows, state


def _on_gpu(
    case: Case, device: torch.device, *, spare: int = 7, refused: int = 0, most_rows: int = 5000
) -> tuple[np.ndarray, np.ndarray]:
    from elastichost.gpu.compiled import padded_width
    from elastichost.gpu.row_updates import KeyFormat, LookupLists, update_rows

    rows, state = (torch.from_numpy(array.copy()).to(device) for array in (case.rows, case.state))
    entries, values, offsets, rates, gradient = (
        torch.from_numpy(array).to(device)
        for array in (case.entries, case.values, case.offsets, case.rates, _gradient(case))
    )
    firsts = torch.from_numpy(case.offsets[case.entries[:, 0]]).to(device)
    width, keys = padded_width(max(case.padded)), KeyFormat.of(len(case.dims), most_rows)
    lists = LookupLists.allocate(len(case.values) + spare, width, device, keys)
    lists.fill(entries, torch.arange(len(case.dims), device=device), firsts, values, offsets, case.size)
    update_rows(
        rows.data_ptr(),
        state.data_ptr(),
        case.tables().to(device),
        rates,
        torch.ones(1, device=device),
        torch.full((1,), refused, dtype=torch.int32, device=device),
        lists,
        gradient,
        frozenset(int(code) for code in case.updates[:, 3]),
    )
    return rows.cpu().numpy(), state.cpu().numpy()


@pytest.mark.parametrize("most_rows", [5000, 1 << 33], ids=["int32 keys", "int64 keys"])
@pytest.mark.parametrize("name", CASES)
def test_rows_and_state_equal_those_of_the_cpu(device: torch.device, name: str, most_rows: int) -> None:
    case = CASES[name]
    rows, state = _on_cpu(case)
    assert (rows != case.rows).any()
    found_rows, found_state = _on_gpu(case, device, most_rows=most_rows)
    np.testing.assert_allclose(found_rows, rows, rtol=2e-6, atol=5e-7)
    np.testing.assert_allclose(found_state, state, rtol=1e-5, atol=1e-6)


def test_the_skewed_case_needs_both_levels() -> None:
    assert CASES["a row with more lookups than two levels' tile"].longest_run > 16 * 64


def test_equal_batches_give_equal_bits_whatever_the_capacity(device: torch.device) -> None:
    case = CASES["lists"]
    first, second = _on_gpu(case, device), _on_gpu(case, device, spare=500)
    for left, right in zip(first, second, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_refused_batch_changes_nothing(device: torch.device) -> None:
    case = CASES["a row with more lookups than two levels' tile"]
    rows, state = _on_gpu(case, device, refused=1)
    np.testing.assert_array_equal(rows, case.rows)
    np.testing.assert_array_equal(state, case.state)


@pytest.mark.parametrize(("name", "decay", "what"), [("adam", 0.0, "trained by adam"), ("sgd", 0.1, "weight decay")])
def test_an_optimizer_that_a_gpu_does_not_have_is_refused(
    device: torch.device, name: RowOptimizer, decay: float, what: str
) -> None:
    from elastichost.gpu.lookup import DeviceLookup
    from elastichost.gpu.row_placement import RowPlacement

    optimizer = RowOptimizerSpec(name, weight_decay=decay)
    spec = EmbeddingSpec("items", 0, 0, "m", "bag", ("f",), 8, "sum", optimizer, 0, 0)
    word = torch.zeros(1, device=device)
    with pytest.raises(ConfigError, match=f"'items' .*{what}, which a GPU cannot compute"):
        DeviceLookup([spec], RowPlacement(0, 0, (0,), (0,), (8,)), word, word)
