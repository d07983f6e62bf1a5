"""Marks of tests that compute in bfloat16, for which this CPU may lack the units."""

from __future__ import annotations

import pytest

from elastichost.host.cpu_features import present_cpu, refuses_bfloat16

__all__ = ["both_precisions", "needs_bfloat16"]

REFUSED = refuses_bfloat16(present_cpu())
needs_bfloat16 = pytest.mark.skipif(bool(REFUSED), reason=f"no bfloat16: {REFUSED}")
both_precisions = pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
