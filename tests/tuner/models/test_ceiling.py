"""What measured work leaves possible: from CPU times, never from waiting."""

from __future__ import annotations

import math

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
# two workers: 3 ms of CPU for a batch in the training thread, 4 in the process, 1 in the PS
TWO = Observation(
    Configuration(2, 2), 200_000.0, 0.01, 20.0, 1000, training_cpu_s=3e-3, worker_cpu_s=4e-3, server_cpu_s=1e-3
)


def limit(workload: Workload, seen: list[Observation], *of: int) -> float:
    return float(ceiling(workload, seen, as_array([Configuration(*of)]))[0])


def test_workers_train_no_faster_than_their_threads_compute() -> None:
    assert limit(HOST, [TWO], 1, 1) == pytest.approx(500 / 3e-3)
    assert limit(HOST, [TWO], 1, 1, 2) == pytest.approx(2 * 500 / 3e-3)


def test_no_plan_trains_faster_than_the_cores_compute() -> None:
    assert limit(HOST, [TWO], 4, 1) == pytest.approx(4 * 500 / 5e-3)
    assert limit(HOST, [TWO], 16, 1) == limit(HOST, [TWO], 4, 1)


def test_waiting_limits_nothing() -> None:
    """Threads that wait for a core, for PS or for input are slow without using the CPU."""
    crowded = msgspec.structs.replace(TWO, samples_per_s=20_000.0, compute_s=0.04, reader_s=0.04, exchange_s=0.04)
    assert limit(HOST, [crowded], 4, 1) == limit(HOST, [TWO], 4, 1)


def test_more_workers_than_have_kept_all_cores_busy_get_no_relief() -> None:
    """They cost each other caches and turns, and no work takes less CPU time for that."""
    busy = msgspec.structs.replace(TWO, configuration=Configuration(4, 2), samples_per_s=390_000.0)

    def found(*of: int) -> float:
        return float(most(HOST, [busy], as_array([Configuration(*of)]))[0])

    assert found(6, 2) == found(8, 3) == pytest.approx(4 * 500 / 5e-3)
    for less in ((6, 1), (4, 3), (3, 2)):  # fewer PS may cost less, and so may fewer workers
        assert found(*less) == pytest.approx(limit(HOST, [busy], *less) * math.exp(RELIEF)), less
    assert most(HOST, [TWO], as_array([Configuration(6, 2)]))[0] > found(6, 2), "two workers left cores idle"
    assert most(msgspec.structs.replace(HOST, host_cores=0), [busy], as_array([Configuration(6, 2)]))[0] > found(6, 2)


def test_with_served_access_only_what_training_threads_take_is_sure_to_stay_with_fewer_ps() -> None:
    served = msgspec.structs.replace(HOST, access="served")
    assert limit(served, [TWO], 4, 2) == pytest.approx(4 * 500 / 5e-3)
    assert limit(served, [TWO], 4, 1) == pytest.approx(4 * 500 / (3e-3 + 2e-3 / 2))
    assert limit(served, [TWO], 4, 3) == limit(served, [TWO], 4, 2)


def test_in_sync_mode_a_worker_computes_its_part_of_a_step() -> None:
    sync, slow = msgspec.structs.replace(HOST, mode="sync"), msgspec.structs.replace(TWO, samples_per_s=100_000.0)
    assert limit(sync, [slow], 1, 1) == pytest.approx(250 / 3e-3)
    assert limit(sync, [slow], 16, 2) == pytest.approx(4 * 500 / (2 * 4e-3 + 1e-3))


def test_the_least_cost_that_was_measured_holds() -> None:
    dearer = msgspec.structs.replace(
        TWO, configuration=Configuration(8, 1), training_cpu_s=6e-3, worker_cpu_s=8e-3, server_cpu_s=2e-3
    )
    for of in ((1, 1), (4, 1), (16, 2)):
        assert limit(HOST, [TWO, dearer], *of) == limit(HOST, [TWO], *of) > limit(HOST, [dearer], *of)


def test_what_was_measured_with_more_workers_than_cores_says_less() -> None:
    crowded = msgspec.structs.replace(TWO, configuration=Configuration(16, 2), samples_per_s=100_000.0)
    assert limit(HOST, [crowded], 1, 1) == pytest.approx(2 * 500 / 3e-3)
    assert limit(HOST, [crowded], 4, 2) == pytest.approx(2 * 4 * 500 / 5e-3)
    cluster = msgspec.structs.replace(HOST, host_cores=0)
    assert limit(cluster, [crowded], 1, 1) == pytest.approx(500 / 3e-3)


def test_what_was_measured_is_not_ruled_out() -> None:
    """Times may be counted late, or wrong: the speed is counted by samples."""
    for workload in (HOST, msgspec.structs.replace(HOST, access="served"), msgspec.structs.replace(HOST, mode="sync")):
        wrong = msgspec.structs.replace(TWO, training_cpu_s=3e-2, worker_cpu_s=4e-2, server_cpu_s=1e-2)
        assert limit(workload, [wrong], 2, 2) == pytest.approx(wrong.samples_per_s)


@pytest.mark.parametrize("workload", [HOST, msgspec.structs.replace(HOST, has_gpus=True)])
def test_what_spins_is_no_limit(workload: Workload) -> None:
    """Threads of a worker that wait for each other, or for a GPU."""
    threads = 1 if workload.has_gpus else 2
    spinning = msgspec.structs.replace(TWO, configuration=Configuration(2, 1, threads))
    assert limit(workload, [spinning], 1, 1) == math.inf
    assert limit(workload, [], 1, 1) == math.inf


def test_cores_of_ones_own_are_no_limit_for_others() -> None:
    cluster = msgspec.structs.replace(HOST, host_cores=0)
    assert limit(cluster, [TWO], 64, 1) == pytest.approx(64 * 500 / 3e-3)


@given(log=st.floats(-3.0, 3.0), error=st.floats(0.0, 1.0))
def test_nothing_is_predicted_beyond_the_limit_and_what_is_faster_stays_so(log: float, error: float) -> None:
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


def test_recorded_runs_keep_to_it() -> None:
    """Of every block of one thread a worker, what it leaves possible for all other configurations of the grid. Nobody
    recorded the training thread's time: of what a process used, its reader has at most the time that it read for."""
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
