"""Settings of all tests: the user's history of jobs is neither read nor written, and no test fails because it is
slow."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.effort import examples
from tests.interpreter import interpret_kernels

os.environ["ELASTICHOST_HISTORY"] = "off"
interpret_kernels()

# Hypothesis limits each example to 0.2 s unless told otherwise, and a busy machine exceeds that now and then.
settings.register_profile("elastichost", deadline=None, max_examples=examples(100))
settings.load_profile("elastichost")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests begin first: at the end, no core waits for one of them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
