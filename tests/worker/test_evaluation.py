"""What a worker keeps of the batches that it scores."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elastichost.worker.evaluation import KeptColumns


@given(st.lists(st.integers(1, 7), max_size=6), st.integers(1, 3), st.booleans())
def test_the_columns_of_all_batches_are_joined_in_order(sizes: list[int], width: int, has_weights: bool) -> None:
    kept, total = KeptColumns(sum(sizes) + 3), sum(sizes)  # positions without a valid sample leave room
    values = np.arange(total * width, dtype=np.float32).reshape(total, width)
    stop = 0
    for size in sizes:
        start, stop = stop, stop + size
        ids = np.zeros((size, 0), np.int64)  # no metric has groups
        weights = values[start:stop, 0] if has_weights else None
        kept.add(size, {"logits": values[start:stop].reshape(-1), "weights": weights, "ids": ids})
    assert kept.samples == total
    assert kept.column("logits", np.float32).tolist() == values.reshape(-1).tolist()
    assert kept.column("weights", np.float32).tolist() == (values[:, 0].tolist() if has_weights else [])
    assert kept.column("ids", np.int64).size == kept.column("truth", np.float32).size == 0


def test_a_batch_leaves_no_array_behind() -> None:
    """Such an array would lie between the tensors of two batches."""
    kept, logits = KeptColumns(100), np.ones(10, np.float32)
    kept.add(10, {"logits": logits})
    first = kept.column("logits", np.float32)
    kept.add(10, {"logits": 2 * logits})
    both = kept.column("logits", np.float32)
    assert np.shares_memory(first, both) and not np.shares_memory(both, logits)
