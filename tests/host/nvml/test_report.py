"""The statuses of a run's GPUs: what is its own, and what an error of NVML does."""

from __future__ import annotations

import msgspec
import pynvml
import pytest

from elastichost.host.nvml.report import RETRY_S, GpuReporter
from elastichost.resources import GpuDevice
from tests.host.nvml.recorded import IDLE, ONE_BUSY, RECORDED_PIDS, TWO_BUSY, RecordedNvml

GPUS = (GpuDevice(0, "NVIDIA H200", 150754820096),)
FIRST, SECOND = RECORDED_PIDS


def test_shares_are_measured_between_two_looks() -> None:
    reporter = GpuReporter(GPUS, RecordedNvml(ONE_BUSY))
    (first,) = reporter.look(100.0, {FIRST})
    assert (first.busy, first.own_busy) == (None, None)
    (status,) = reporter.look(101.0, {FIRST})
    assert status.busy == pytest.approx(1.0)
    assert status.own_busy == pytest.approx(0.37)
    assert status.own_bytes == 811597824
    assert (status.used_bytes, status.problem) == (820838400, "")


def test_the_processes_of_others_are_not_the_runs_own() -> None:
    reporter = GpuReporter(GPUS, RecordedNvml(TWO_BUSY))
    reporter.look(100.0, {SECOND})
    (status,) = reporter.look(101.0, {SECOND})
    assert status.own_bytes == 811597824
    assert status.used_bytes == 1638334464
    assert status.own_busy is not None and status.busy is not None and status.own_busy < 0.5 * status.busy
    assert reporter.memory_bytes == {FIRST: 811597824, SECOND: 811597824}


def test_a_run_that_nvml_does_not_name_has_no_own_figures() -> None:
    """As in a container, where NVML tells other pids."""
    reporter = GpuReporter(GPUS, RecordedNvml(ONE_BUSY))
    reporter.look(100.0, {7})
    (status,) = reporter.look(101.0, {7})
    assert (status.own_busy, status.own_bytes) == (None, None)
    assert status.busy == pytest.approx(1.0)


class NotToldApart(RecordedNvml):
    """A GPU that does not tell processes apart. `code`: what it answers instead."""

    code = pynvml.NVML_ERROR_NOT_SUPPORTED

    def nvmlDeviceGetProcessUtilization(self, handle: int, newer_us: int) -> object:  # noqa: N802
        raise pynvml.NVMLError(self.code)


class Divided(NotToldApart):
    """A GPU that is divided with MIG: the driver does not tell how busy it is, either."""

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> object:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_shares_that_nvml_does_not_support_are_the_only_figures_that_are_missing() -> None:
    reporter = GpuReporter(GPUS, NotToldApart(ONE_BUSY))
    reporter.look(100.0, {FIRST})
    (status,) = reporter.look(101.0, {FIRST})
    assert status.problem == ""
    assert status.used_bytes is not None and status.used_bytes > 0
    assert (status.busy, status.own_busy) == (pytest.approx(1.0), None)
    assert status.own_bytes == 811597824


def test_a_divided_gpu_is_not_shown_as_idle() -> None:
    reporter = GpuReporter(GPUS, Divided(ONE_BUSY))
    reporter.look(100.0, {FIRST})
    (status,) = reporter.look(101.0, {FIRST})
    assert (status.problem, status.busy, status.memory_busy, status.own_busy) == ("", None, None, None)
    assert (status.own_bytes, status.temperature_c) == (811597824, 45)


def test_the_problem_is_what_nvml_said() -> None:
    nvml = NotToldApart(ONE_BUSY)
    nvml.code = pynvml.NVML_ERROR_UNKNOWN
    reporter = GpuReporter(GPUS, nvml)
    (status,) = reporter.look(100.0, ())
    assert status.problem == "Unknown Error"
    assert not reporter.lost


def test_a_library_that_fails_is_a_problem_until_it_answers_again() -> None:
    nvml = RecordedNvml(IDLE)
    reporter = GpuReporter(GPUS, nvml)
    reporter.look(100.0, ())
    nvml.is_mute = True
    (mute,) = reporter.look(101.0, ())
    assert "Unknown" in mute.problem and not reporter.lost
    assert (mute.total_bytes, mute.busy) == (150754820096, None)
    assert nvml.opened == 0
    nvml.is_mute = False
    (early,) = reporter.look(102.0, ())
    assert early.problem == mute.problem, "the library is not asked again at once"
    (again,) = reporter.look(101.0 + RETRY_S, ())
    assert (again.problem, again.busy) == ("", None)


def test_a_library_that_cannot_be_opened_is_a_problem() -> None:
    nvml = RecordedNvml()
    nvml.is_mute = True
    reporter = GpuReporter(GPUS, nvml)
    (status,) = reporter.look(100.0, ())
    assert "Unknown" in status.problem
    reporter.close()


def test_a_lost_gpu_is_not_asked_again_and_the_others_are_still_measured() -> None:
    nvml = RecordedNvml(IDLE, gpus=2)
    reporter = GpuReporter((*GPUS, msgspec.structs.replace(GPUS[0], index=1)), nvml)
    reporter.look(100.0, ())
    nvml.lost = frozenset({0})
    lost, other = reporter.look(101.0, ())
    assert "lost" in lost.problem and lost.busy is None
    assert other.problem == "" and other.busy is not None
    assert set(reporter.lost) == {0}
    assert nvml.opened == 2, "the library stays open: opened anew, it may number the GPUs in another way"
    nvml.lost = frozenset()
    lost, other = reporter.look(102.0, ())
    assert "lost" in lost.problem and other.problem == "", "a lost GPU needs a reset"
    nvml.lost = frozenset({1})
    assert all("lost" in one.problem for one in reporter.look(103.0, ()))
    assert all("lost" in one.problem for one in reporter.look(104.0, ()))
    reporter.close()
    assert nvml.opened == 0


def test_without_gpus_the_library_is_not_loaded() -> None:
    reporter = GpuReporter(())
    assert reporter.look(100.0, ()) == ()
    assert reporter._nvml is None
    reporter.close()
