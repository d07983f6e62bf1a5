"""The upper limit of the speed from measured CPU times; waiting gives no limit."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tuner.recorded_grid import read_grids
from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.base import interval
from elastichost.tuner.models.ceiling import RELIEF, bounded, ceiling, most

HOST = Workload(batch_size=500, host_cores=4)
# two workers; CPU time of a batch: 3 ms in the training thread, 4 ms in the whole worker, 1 ms in the PS
TWO = Observation(
    Configuration(2, 2), 200_000.0, 0.01, 20.0, 1000, training_cpu_s=3e-3, worker_cpu_s=4e-3, server_cpu_s=1e-3
)


def limit(workload: Workload, seen: list[Observation], *of: int) -> float:
    return float(ceiling(workload, seen, as_array([Configuration(*of)]))[0])


def test_the_cpu_time_of_training_threads_limits_the_speed() -> None:
    assert limit(HOST, [TWO], 1, 1) == pytest.approx(500 / 3e-3)
    assert limit(HOST, [TWO], 1, 1, 2) == pytest.approx(2 * 500 / 3e-3)


def test_the_cores_of_the_host_limit_the_speed() -> None:
    assert limit(HOST, [TWO], 4, 1) == pytest.approx(4 * 500 / 5e-3)
    assert limit(HOST, [TWO], 16, 1) == limit(HOST, [TWO], 4, 1)


def test_waiting_gives_no_limit() -> None:
    """Threads that wait for a core, for a PS or for input are slow without using the CPU."""
    crowded = msgspec.structs.replace(TWO, samples_per_s=20_000.0, compute_s=0.04, reader_s=0.04, exchange_s=0.04)
    assert limit(HOST, [crowded], 4, 1) == limit(HOST, [TWO], 4, 1)


def test_more_workers_than_a_configuration_with_busy_cores_get_no_relief() -> None:
    """More workers compete for caches and are switched, which never reduces the CPU time of the work."""
    busy = msgspec.structs.replace(TWO, configuration=Configuration(4, 2), samples_per_s=390_000.0)

    def found(*of: int) -> float:
        return float(most(HOST, [busy], as_array([Configuration(*of)]))[0])

    assert found(6, 2) == found(8, 3) == pytest.approx(4 * 500 / 5e-3)
    for less in ((6, 1), (4, 3), (3, 2)):  # fewer PS or fewer workers may need less CPU time
        assert found(*less) == pytest.approx(limit(HOST, [busy], *less) * math.exp(RELIEF)), less
    assert most(HOST, [TWO], as_array([Configuration(6, 2)]))[0] > found(6, 2), "two workers do not fill the cores"
    assert most(msgspec.structs.replace(HOST, host_cores=0), [busy], as_array([Configuration(6, 2)]))[0] > found(6, 2)


def test_with_served_access_and_fewer_ps_only_the_time_of_training_threads_is_constant() -> None:
    served = msgspec.structs.replace(HOST, access="served")
    assert limit(served, [TWO], 4, 2) == pytest.approx(4 * 500 / 5e-3)
    assert limit(served, [TWO], 4, 1) == pytest.approx(4 * 500 / (3e-3 + 2e-3 / 2))
    assert limit(served, [TWO], 4, 3) == limit(served, [TWO], 4, 2)


def test_in_sync_mode_a_worker_computes_its_part_of_a_step() -> None:
    sync, slow = msgspec.structs.replace(HOST, mode="sync"), msgspec.structs.replace(TWO, samples_per_s=100_000.0)
    assert limit(sync, [slow], 1, 1) == pytest.approx(250 / 3e-3)
    assert limit(sync, [slow], 16, 2) == pytest.approx(4 * 500 / (2 * 4e-3 + 1e-3))


def test_the_least_measured_cpu_time_is_used() -> None:
    dearer = msgspec.structs.replace(
        TWO, configuration=Configuration(8, 1), training_cpu_s=6e-3, worker_cpu_s=8e-3, server_cpu_s=2e-3
    )
    for of in ((1, 1), (4, 1), (16, 2)):
        assert limit(HOST, [TWO, dearer], *of) == limit(HOST, [TWO], *of) > limit(HOST, [dearer], *of)


def test_measurements_with_more_workers_than_cores_limit_less() -> None:
    crowded = msgspec.structs.replace(TWO, configuration=Configuration(16, 2), samples_per_s=100_000.0)
    assert limit(HOST, [crowded], 1, 1) == pytest.approx(2 * 500 / 3e-3)
    assert limit(HOST, [crowded], 4, 2) == pytest.approx(2 * 4 * 500 / 5e-3)
    cluster = msgspec.structs.replace(HOST, host_cores=0)
    assert limit(cluster, [crowded], 1, 1) == pytest.approx(500 / 3e-3)


def test_a_measured_speed_is_never_above_its_own_limit() -> None:
    """CPU times may be counted late or wrongly; the speed is counted in samples."""
    for workload in (HOST, msgspec.structs.replace(HOST, access="served"), msgspec.structs.replace(HOST, mode="sync")):
        wrong = msgspec.structs.replace(TWO, training_cpu_s=3e-2, worker_cpu_s=4e-2, server_cpu_s=1e-2)
        assert limit(workload, [wrong], 2, 2) == pytest.approx(wrong.samples_per_s)


@pytest.mark.parametrize("workload", [HOST, msgspec.structs.replace(HOST, has_gpus=True)])
def test_spinning_threads_give_no_limit(workload: Workload) -> None:
    """Threads of a worker spin while they wait for each other or for a GPU."""
    threads = 1 if workload.has_gpus else 2
    spinning = msgspec.structs.replace(TWO, configuration=Configuration(2, 1, threads))
    assert limit(workload, [spinning], 1, 1) == math.inf
    assert limit(workload, [], 1, 1) == math.inf


def test_processes_with_their_own_cores_have_no_common_limit() -> None:
    cluster = msgspec.structs.replace(HOST, host_cores=0)
    assert limit(cluster, [TWO], 64, 1) == pytest.approx(64 * 500 / 3e-3)


@pytest.mark.parametrize(
    ("mode", "of", "samples_per_s"),
    [
        ("async", (2, 1), 2 * 500 / 4e-3),
        ("async", (8, 4), 8 * 500 / 4e-3),
        ("async", (1, 1, 1), 500 / 4e-3),  # fewer threads are never faster
        ("async", (1, 1, 8), 4 * 500 / 4e-3),
        ("sync", (1, 1, 2), 500 / 4e-3),  # a larger part of a step takes no less time
        ("sync", (8, 1, 2), 4 * 500 / 4e-3),
    ],
)
def test_the_time_of_computing_limits_workers_with_cores_of_their_own(
    mode: Any, of: tuple[int, ...], samples_per_s: float
) -> None:
    """Nothing crowds these workers, so the duration of a batch is its work."""
    cluster = Workload(batch_size=500, mode=mode)
    seen = Observation(Configuration(2, 1, 2), 100_000.0, 0.01, 20.0, 1000, compute_s=4e-3)
    assert limit(cluster, [seen], *of) == pytest.approx(samples_per_s)
    assert limit(msgspec.structs.replace(cluster, host_cores=4), [seen], *of) == math.inf, "they share cores"


@given(log=st.floats(-3.0, 3.0), error=st.floats(0.0, 1.0))
def test_bounded_predictions_stay_below_the_limit_and_keep_their_order(log: float, error: float) -> None:
    logs = np.array([log, log + 0.01])
    told = interval(np.log(1000.0) + logs, np.full(2, error), np.zeros(2, dtype=bool))
    found = bounded(told, np.full(2, 1000.0 * math.exp(RELIEF)))
    for name in ("samples_per_s", "low", "high"):
        values = getattr(found, name)
        assert (values <= 1000.0 * math.exp(RELIEF) + 1e-6).all()
        assert values[1] >= values[0]
        below = getattr(told, name) <= 1000.0
        assert np.array_equal(values[below], getattr(told, name)[below])
    free = bounded(told, np.full(2, np.inf))
    assert np.array_equal(free.samples_per_s, told.samples_per_s)


def test_recorded_runs_stay_below_the_limit() -> None:
    """The limit from every block with one thread per worker holds for all other configurations of the grid. The CPU
    time of the training thread was not recorded; it is taken as the time of the process less the time of its reader."""
    excess = []
    for _, grid in read_grids():
        for case in grid.cases:
            speeds: dict[Configuration, list[float]] = {}
            for block in case.blocks:
                speeds.setdefault(block.configuration, []).append(math.log(block.samples_per_s))
            truth = {one: float(np.mean(logs)) for one, logs in speeds.items()}
            others = as_array(list(truth))
            for block in case.blocks:
                training_s = max(0.0, (block.worker_cpu_s or 0.0) - (block.reader_s or 0.0))
                timed = msgspec.structs.replace(block, training_cpu_s=training_s)
                if block.configuration.worker_cores == 1:
                    excess += (
                        np.array(list(truth.values())) - np.log(ceiling(case.workload, [timed], others))
                    ).tolist()
    assert np.quantile(excess, 0.9) < RELIEF and max(excess) < 0.25
