"""The GPUs that a process may use: as NVML tells, within CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.host.nvml.devices import VISIBLE, devices_of, driver_version, usable_devices, visible_indices
from tests.host.nvml.recorded import RecordedNvml

UUIDS = {0: "GPU-aa10", 1: "GPU-ab20", 2: "GPU-ab21"}


def test_a_device_has_its_memory_its_uuid_and_the_cores_near_it() -> None:
    one, two = devices_of(RecordedNvml(gpus=2))
    assert (one.index, one.name, one.memory_bytes) == (0, "NVIDIA H200", 150754820096)
    assert one.uuid.startswith("GPU-") and one.uuid != two.uuid
    assert one.near_cores == tuple(range(16)), "the mask that was recorded"
    assert one.link_bytes_per_s == pytest.approx(55e9, rel=0.02), "as copies were measured to reach"
    assert driver_version(RecordedNvml()) == "580.159.04"


def test_a_device_that_does_not_answer_is_left_out_and_the_others_keep_their_numbers() -> None:
    nvml = RecordedNvml(gpus=3)
    nvml.lost = frozenset({1})
    assert [gpu.index for gpu in devices_of(nvml)] == [0, 2]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("-1", ()),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("0,7,1", (0,)),
        ("1,1,2", (1,)),
        ("GPU-ab20", (1,)),
        ("GPU-aa,0", (0,)),
        ("GPU-aa,1", (0, 1)),
        ("GPU-ab", ()),
        ("MIG-aa10", ()),
        ("aa10", ()),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(setting: str | None, expected: tuple[int, ...]) -> None:
    assert visible_indices(setting, UUIDS) == expected


@given(st.text(alphabet="0123,-GPUab ", max_size=20))
def test_any_text_names_each_device_at_most_once(setting: str) -> None:
    found = visible_indices(setting, UUIDS)
    assert len(set(found)) == len(found) and set(found) <= set(UUIDS)


def test_the_inventory_is_within_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = RecordedNvml(gpus=3)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv(VISIBLE, "2,1")
    assert [gpu.index for gpu in usable_devices()] == [2, 1]
    monkeypatch.delenv(VISIBLE)
    assert [gpu.index for gpu in usable_devices()] == [0, 1, 2]
    assert nvml.opened == 0
