"""GPU use by process as NVML reports it, and use that belongs to no process."""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace

import pytest

from elastichost.host.nvml import use as gpu_meter
from elastichost.host.nvml.use import GpuMeter
from elastichost.resources import GpuDevice

GPUS = (GpuDevice(0, "an accelerator", 80 << 30),)


class Nvml(ModuleType):
    """Stands for pynvml on a host with one GPU."""

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801, N818 - its name
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818
        pass

    class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801, N818
        pass

    class NVMLError_NoPermission(NVMLError):  # noqa: N801, N818
        pass

    def __init__(self) -> None:
        super().__init__("nvml")
        self.is_open = False
        self.busy, self.memory_busy = 0, 0
        self.samples: list[SimpleNamespace] = []
        self.memory: dict[int, int | None] = {}
        self.is_lost = False

    def nvmlInit(self) -> None:  # noqa: N802
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        if self.is_lost:
            raise self.NVMLError("GPU is lost")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.memory.items()]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=self.busy, memory=self.memory_busy)

    def nvmlDeviceGetProcessUtilization(self, handle: int, newer_us: int) -> list[SimpleNamespace]:  # noqa: N802
        found = [one for one in self.samples if one.timeStamp > newer_us]
        if not found:
            raise self.NVMLError_NotFound("Not Found")
        return found

    def says(self, at_us: int, pid: int, busy: int, memory: int = 0) -> None:
        """NVML has a new sample of a process."""
        self.samples.append(SimpleNamespace(timeStamp=at_us, pid=pid, smUtil=busy, memUtil=memory))


@pytest.fixture
def nvml() -> Nvml:
    return Nvml()


def test_each_process_keeps_its_share_until_nvml_has_a_new_sample(nvml: Nvml) -> None:
    meter = GpuMeter(GPUS, nvml)
    nvml.memory, nvml.busy, nvml.memory_busy = {11: 500, 12: None}, 60, 10
    nvml.says(1, 11, 40, 8)
    nvml.says(1, 12, 20, 2)
    (first,) = meter.look(100.0)
    assert first.busy_s == 0 and first.memory_bytes == {11: 500, 12: 0}
    (second,) = meter.look(102.0)
    assert second.by_pid == {11: pytest.approx((0.8, 0.16)), 12: pytest.approx((0.4, 0.04))}
    assert (second.busy_s, second.memory_s) == pytest.approx((1.2, 0.2))
    assert second.nobodys == pytest.approx((0.0, 0.0))
    nvml.says(2, 11, 10)
    (third,) = meter.look(103.0)
    assert third.by_pid[11] == pytest.approx((0.1, 0.0))
    assert third.nobodys == pytest.approx((0.3, 0.08))


def test_shares_above_the_busy_time_divide_the_busy_time(nvml: Nvml) -> None:
    meter = GpuMeter(GPUS, nvml)
    nvml.memory, nvml.busy = {11: 500, 12: 500}, 20
    nvml.says(1, 11, 90)
    nvml.says(1, 12, 30)
    meter.look(0.0)
    (use,) = meter.look(2.0)
    assert use.by_pid == {11: pytest.approx((0.3, 0.0)), 12: pytest.approx((0.1, 0.0))}
    assert use.nobodys == pytest.approx((0.0, 0.0))


def test_a_share_of_0_percent_still_counts_as_a_little_use(nvml: Nvml) -> None:
    meter = GpuMeter(GPUS, nvml)
    nvml.memory, nvml.busy = {11: 500}, 1
    nvml.says(1, 11, 0)
    meter.look(0.0)
    assert 0 < meter.look(1.0)[0].by_pid[11][0] < 0.01


def test_a_process_that_has_left_is_not_counted(nvml: Nvml) -> None:
    meter = GpuMeter(GPUS, nvml)
    nvml.memory = {11: 500}
    nvml.says(1, 11, 90)
    meter.look(0.0)
    nvml.memory = {}
    assert meter.look(1.0)[0].by_pid == {}


def test_work_of_the_mps_server_belongs_to_no_process(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_meter, "_is_mps", lambda pid: pid == 7)
    meter = GpuMeter(GPUS, nvml)
    nvml.memory, nvml.busy = {7: 60, 11: 500, 12: 500}, 50
    nvml.says(1, 7, 50)
    meter.look(0.0)
    (use,) = meter.look(2.0)
    assert use.by_pid == {}
    assert use.nobodys[0] == pytest.approx(1.0)


def test_this_process_is_no_mps_server() -> None:
    assert not gpu_meter._is_mps(os.getpid())
    assert not gpu_meter._is_mps(2**22 + 1)


def test_a_gpu_that_does_not_answer_is_left_out(nvml: Nvml) -> None:
    meter = GpuMeter(GPUS, nvml)
    nvml.is_lost = True
    assert meter.look(0.0) == ()
    assert {gpu: str(error) for gpu, error in meter.problems.items()} == {0: "GPU is lost"}
    nvml.is_lost = False
    assert len(meter.look(1.0)) == 1
    assert meter.problems == {}


@pytest.mark.parametrize("name", ["NotSupported", "FunctionNotFound", "NoPermission"])
@pytest.mark.parametrize("call", ["ProcessUtilization", "UtilizationRates", "ComputeRunningProcesses"])
def test_a_figure_that_nvml_does_not_tell_leaves_the_others(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, name: str, call: str
) -> None:
    def refuses(*arguments: object) -> None:
        raise getattr(nvml, f"NVMLError_{name}")

    nvml.memory, nvml.busy = {11: 500}, 60
    nvml.says(1, 11, 40)
    monkeypatch.setattr(nvml, f"nvmlDeviceGet{call}", refuses)
    meter = GpuMeter(GPUS, nvml)
    meter.look(0.0)
    (use,) = meter.look(1.0)
    assert meter.problems == {}
    assert use.is_known == (call != "UtilizationRates")
    assert use.busy_s == (pytest.approx(0.6) if use.is_known else 0.0)
    assert use.memory_bytes == ({} if call == "ComputeRunningProcesses" else {11: 500})
    if call != "UtilizationRates":
        assert use.by_pid == {} and use.nobodys[0] == pytest.approx(0.6)


def test_without_gpus_nvml_is_not_opened(nvml: Nvml) -> None:
    meter = GpuMeter((), nvml)
    assert meter.look(0.0) == ()
    meter.close()
    assert not nvml.is_open


def test_close_shuts_nvml_down(nvml: Nvml) -> None:
    meter = GpuMeter(GPUS, nvml)
    assert nvml.is_open
    meter.close()
    assert not nvml.is_open
    assert meter.look(0.0) == ()
