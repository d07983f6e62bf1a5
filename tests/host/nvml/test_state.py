"""The state of a GPU as a recorded H200 told it, and GPUs that tell less."""

from __future__ import annotations

import pynvml
import pytest

from elastichost.host.nvml.state import GpuStateMeter
from elastichost.resources import GpuDevice
from tests.host.nvml.recorded import IDLE, ONE_BUSY, RecordedNvml

GPUS = (GpuDevice(0, "NVIDIA H200", 150754820096),)
MIB = 1 << 20


def test_the_state_of_a_busy_gpu() -> None:
    nvml = RecordedNvml(ONE_BUSY)
    meter = GpuStateMeter(GPUS, nvml)
    (state,) = meter.read()
    assert (state.used_bytes, state.total_bytes) == (820838400, 150754820096)
    assert (state.clock_mhz, state.power_w, state.temperature_c) == (1980, 246.496, 45)
    assert state.received_bytes_per_s == pytest.approx(9026.618888 * MIB)
    assert state.sent_bytes_per_s == pytest.approx(10286.349062 * MIB)
    assert state.slowed_by == ()
    meter.close()
    assert nvml.opened == 0


def test_an_idle_gpu_has_hardly_any_traffic() -> None:
    (state,) = GpuStateMeter(GPUS, RecordedNvml(IDLE)).read()
    assert state.received_bytes_per_s is not None and state.received_bytes_per_s < MIB


class Older(RecordedNvml):
    """A GPU without profiling metrics, with no figure of its power, that the driver slows for two reasons."""

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> object:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:  # noqa: N802
        heat = pynvml.nvmlClocksEventReasonSwThermalSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown
        return int(heat | pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle)


def test_what_a_gpu_does_not_tell_is_none() -> None:
    (state,) = GpuStateMeter(GPUS, Older(ONE_BUSY)).read()
    assert (state.received_bytes_per_s, state.sent_bytes_per_s, state.power_w) == (None, None, None)
    assert state.temperature_c == 45


def test_reasons_for_a_lower_clock_are_told_once_each() -> None:
    (state,) = GpuStateMeter(GPUS, Older(ONE_BUSY)).read()
    assert state.slowed_by == ("power limit", "temperature")


class Unsampled(RecordedNvml):
    """A GPU that names profiling metrics, but gives a sample only while `given` is positive. `held`: samples in use."""

    given = 0
    held = 0

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        self.held += 1
        return super().nvmlGpmSampleAlloc()

    def nvmlGpmSampleFree(self, sample: object) -> None:  # noqa: N802
        self.held -= 1

    def nvmlGpmSampleGet(self, handle: int, sample: object) -> None:  # noqa: N802
        self.given -= 1
        if self.given < 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)


@pytest.mark.parametrize("given", [0, 1])
def test_without_samples_only_the_traffic_is_unknown(given: int) -> None:
    nvml = Unsampled(ONE_BUSY)
    nvml.given = given
    meter = GpuStateMeter(GPUS, nvml)
    for _ in range(2):
        (state,) = meter.read()
        assert (state.received_bytes_per_s, state.sent_bytes_per_s) == (None, None)
        assert (state.temperature_c, state.used_bytes) == (45, 820838400)
    assert nvml.held == 2 * given, "samples that are never used are given back"
    meter.close()
    assert nvml.held == 0


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_figure_that_an_older_driver_lacks_or_does_not_permit_is_none(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuses(*arguments: object) -> None:
        raise pynvml.NVMLError(code)

    nvml = RecordedNvml(ONE_BUSY)
    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", refuses, raising=False)
    (state,) = GpuStateMeter(GPUS, nvml).read()
    assert (state.power_w, state.temperature_c) == (None, 45)


def test_a_lost_gpu_is_an_error_and_not_a_missing_figure() -> None:
    nvml = RecordedNvml()
    meter = GpuStateMeter(GPUS, nvml)
    nvml.lost = frozenset({0})
    with pytest.raises(pynvml.NVMLError, match="lost"):
        meter.read()


def test_nothing_is_opened_without_gpus() -> None:
    nvml = RecordedNvml()
    meter = GpuStateMeter((), nvml)
    assert meter.read() == ()
    meter.close()
    assert nvml.opened == 0
