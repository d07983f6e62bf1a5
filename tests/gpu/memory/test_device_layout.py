"""The parts of a model in memory of a GPU do not overlap."""

from __future__ import annotations

import pytest

from elastichost.arena.layout import plan_layout
from elastichost.gpu.memory.device_layout import HEADER_BYTES, DeviceLayout
from tests.arena.conftest import build_model


@pytest.mark.parametrize(("elements", "parameters"), [(10, 8), (1, 1), (4097, 4000)])
@pytest.mark.parametrize("rows", [(1,), (40, 300)])
def test_parts_follow_one_another(rows: tuple[int, ...], elements: int, parameters: int) -> None:
    arena = plan_layout(build_model(rows=rows, elements=elements, parameters=parameters), 7, 1 << 24)
    place = DeviceLayout.of(arena)
    parts = [(0, arena.files.rows), (place.state, arena.files.state)]
    for half in (0, 1):
        parts.append((place.halves[half], HEADER_BYTES))
        parts.append((place.vector(half), 4 * elements))
        parts.append((place.dense_state(half), 8 * parameters))
    ends = [begin + size for begin, size in parts]
    assert all(begin >= end for (begin, _), end in zip(parts[1:], ends, strict=False))
    assert ends[-1] <= place.size_bytes


def test_parts_begin_where_the_kernels_need_them() -> None:
    place = DeviceLayout.of(plan_layout(build_model(rows=(40,), elements=11, parameters=9), 7, 1 << 24))
    assert place.state % 256 == place.halves[0] % 256 == place.halves[1] % 256 == 0
    assert place.vector(1) % 64 == 0
