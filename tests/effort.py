"""How much the tests try: `make test-all` tries everything, `make test` a part of it.

A test with the marker `thorough` runs in `make test-all` only. Tests that draw examples draw fewer in `make test`.
"""

from __future__ import annotations

import os

__all__ = ["IS_THOROUGH", "VARIABLE", "examples"]

VARIABLE = "ELASTICHOST_TESTS"
IS_THOROUGH = os.environ.get(VARIABLE) == "thorough"
SHARE = 5


def examples(count: int) -> int:
    """The number of examples that Hypothesis draws: `count` in `make test-all`, a fifth of it in `make test`."""
    return count if IS_THOROUGH else max(1, count // SHARE)
