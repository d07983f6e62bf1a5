"""The demand of jobs: the model of speed, what is learnt beside other jobs, the modes that follow."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.dispatcher.core.demands import HostPower, Known, MemoryOfSize, basis_of, learnt, modes_of, prior
from elastichost.dispatcher.facts import JobSample
from elastichost.tuner.colocation.facts import RESOURCES
from tests.dispatcher.jobs import MB, POWER, examined, look

CORES = POWER.cores
KNOWN = Known(worker_cpu_s=1e-3, all_cpu_s=1.25e-3, seconds=10.0)


def speeds(known: Known, power: HostPower = POWER, **facts: object) -> dict[int, float]:
    """Returns samples/s by number of workers."""
    found = modes_of(examined("a", **facts), known, power)  # type: ignore[arg-type]
    return {mode.workers: mode.samples_per_s for mode in found}


# --- the model of speed -----------------------------------------------------------------------------------------------


def test_speed_grows_with_workers_until_the_cores_are_used_up() -> None:
    assert speeds(KNOWN, least=1, most=4) == pytest.approx({1: 1000, 2: 2000, 3: 3000, 4: 3200})


def test_a_stated_or_measured_reader_limits_each_worker() -> None:
    assert speeds(KNOWN, least=1, most=3, reader=600.0) == pytest.approx({1: 600, 2: 1200, 3: 1800})
    seen = msgspec.structs.replace(KNOWN, reader_samples_per_s=400.0)
    assert speeds(seen, least=1, most=2, reader=600.0) == pytest.approx({1: 400, 2: 800})


def test_the_memory_of_a_size_between_two_estimates() -> None:
    sizes = (MemoryOfSize(1, 100 * MB, arena_bytes=40 * MB), MemoryOfSize(3, 300 * MB, arena_bytes=60 * MB))
    found = msgspec.structs.replace(examined("a", least=1, most=3), memory=sizes)
    modes = modes_of(found, KNOWN, POWER)
    assert [(mode.memory_bytes, mode.arena_bytes) for mode in modes] == [
        (100 * MB, 40 * MB),
        (200 * MB, 50 * MB),
        (300 * MB, 60 * MB),
    ]


def test_low_efficiency_slows_computing_and_not_reading() -> None:
    seen = msgspec.structs.replace(KNOWN, efficiency=0.5)
    assert speeds(seen, least=1, most=2) == pytest.approx({1: 500, 2: 1000})
    assert speeds(seen, least=1, most=2, reader=100.0) == pytest.approx({1: 100, 2: 200})


def test_threads_of_a_worker_compute_together() -> None:
    assert speeds(KNOWN, least=1, most=2, threads=2) == pytest.approx({1: 2000, 2: 3200})


def test_the_demand_is_cores_and_bandwidth() -> None:
    (mode,) = modes_of(examined("a", row_bytes=1_000_000), KNOWN, POWER)
    cores, bandwidth, *rest = mode.demand
    assert len(mode.demand) == len(RESOURCES)
    assert cores == pytest.approx(1000 * 1.25e-3 / CORES)
    assert bandwidth == pytest.approx(1000 * 3 * 1e6 / 1e10)
    assert rest == [0.0] * (len(RESOURCES) - 2)


def test_sizes_that_add_no_speed_are_no_modes_except_the_present_one() -> None:
    flat = msgspec.structs.replace(KNOWN, worker_cpu_s=0.3e-3, all_cpu_s=1.25e-3)
    found = modes_of(examined("a", least=1, most=6), flat, POWER)
    assert [mode.workers for mode in found] == [1]
    assert [mode.workers for mode in modes_of(examined("a", least=1, most=6), flat, POWER, current=5)] == [1, 5]


def test_a_fixed_size_has_one_mode() -> None:
    fixed = msgspec.structs.replace(examined("a", least=3, most=3), size_is_open=False)
    assert [mode.workers for mode in modes_of(fixed, KNOWN, POWER)] == [3]


@pytest.mark.parametrize("cores", [1, 4, 128])
def test_a_job_that_asks_for_more_workers_than_are_chosen_has_its_least(cores: int) -> None:
    wide = examined("a", least=65, most=100)
    assert [mode.workers for mode in modes_of(wide, KNOWN, HostPower(cores, 1e10))] == [65]


def test_memory_between_known_sizes_is_interpolated() -> None:
    found = modes_of(examined("a", 1000, least=2, most=4, worker_mb=50), KNOWN, HostPower(64, 1e12))
    assert {mode.workers: mode.memory_bytes // MB for mode in found} == {2: 1000, 3: 1050, 4: 1100}
    one = examined("a", 700, least=1, most=1)
    assert modes_of(one, KNOWN, POWER)[0].memory_bytes == 700 * MB


@given(
    worker_cpu_s=st.floats(1e-7, 1.0),
    more=st.floats(0.0, 1.0),
    reader=st.sampled_from([0.0, 1.0, 1e4]),
    efficiency=st.floats(0.2, 1.0),
    sizes=st.lists(st.integers(1, 100), min_size=2, max_size=2).map(sorted),
    cores=st.integers(1, 64),
)
def test_modes_are_allowed_sizes_and_speed_rises_with_each(
    worker_cpu_s: float, more: float, reader: float, efficiency: float, sizes: list[int], cores: int
) -> None:
    least, most = sizes
    known = Known(worker_cpu_s, worker_cpu_s + more, reader, efficiency, 5.0)
    found = modes_of(examined("a", least=least, most=most), known, HostPower(cores, 1e10))
    assert found[0].workers == least
    for before, after in itertools.pairwise(found):
        assert before.workers < after.workers <= most
        assert before.samples_per_s < after.samples_per_s
        assert before.memory_bytes < after.memory_bytes
    for mode in found:
        assert mode.samples_per_s > 0
        assert all(0 <= share <= 1 for share in mode.demand)


def test_before_anything_is_measured_more_ids_cost_more() -> None:
    few, many = examined("a"), msgspec.structs.replace(examined("a"), ids_per_sample=100.0)
    assert prior(many).worker_cpu_s > prior(few).worker_cpu_s
    assert not prior(few).is_measured
    assert prior(few).all_cpu_s > prior(few).worker_cpu_s


# --- learning ---------------------------------------------------------------------------------------------------------


class Truth:
    """A job as it really is. worker_cpu_s, all_cpu_s: CPU seconds of its workers and of all its processes for one
    sample. reader: samples/s that its reader gives to each worker."""

    def __init__(self, worker_cpu_s: float = 1e-3, all_cpu_s: float = 1.25e-3, reader: float = 1e9) -> None:
        self.worker_cpu_s, self.all_cpu_s, self.reader = worker_cpu_s, all_cpu_s, reader

    def alone(self, workers: int, cores: int = CORES) -> float:
        """Samples/s when no other job runs."""
        computing = min(workers / self.worker_cpu_s, cores / self.all_cpu_s)
        return min(workers * self.reader, computing)

    def looked_at(self, workers: int, share: float = 1.0, busy: float | None = None, seconds: float = 2.0) -> JobSample:
        """share: the share of its speed alone that other jobs leave it. busy: share of the host's cores in use."""
        samples = share * self.alone(workers) * seconds
        own = samples * self.all_cpu_s / seconds / CORES
        return JobSample(
            seconds,
            samples,
            samples * self.worker_cpu_s,
            samples * self.all_cpu_s,
            workers,
            own if busy is None else busy,
        )


def after(truth: Truth, looks: int, workers: int = 1, share: float = 1.0, busy: float | None = None) -> Known:
    """What is known of a job after some looks."""
    known = prior(examined("a"))
    for _ in range(looks):
        known = learnt(known, truth.looked_at(workers, share, busy), 1, CORES)
    return known


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("reader", [1e9, 600.0, 50.0])
def test_a_job_alone_is_learnt_as_it_is_from_any_size(workers: int, reader: float) -> None:
    truth = Truth(reader=reader)
    known = after(truth, 10, workers)
    assert known.is_measured
    for other, speed in speeds(known, least=1, most=4).items():
        assert speed == pytest.approx(truth.alone(other), rel=0.05)


@pytest.mark.parametrize("share", [0.8, 0.5, 0.2])
def test_the_speed_alone_is_learnt_even_beside_other_jobs(share: float) -> None:
    """All cores are in use and the job gets fewer of them; the CPU time of a sample does not change."""
    known = after(Truth(), 10, 2, share, busy=1.0)
    assert speeds(known, least=1, most=2) == pytest.approx({1: 1000, 2: 2000}, rel=0.05)
    assert known.reader_samples_per_s == 0, "the reader did not limit the job"


def test_a_reader_that_was_measured_too_slow_is_corrected() -> None:
    """The first seconds of the job were slow for another reason."""
    known = after(Truth(reader=20.0), 3)
    assert known.reader_samples_per_s == pytest.approx(20, rel=0.01)
    fast = Truth()
    for _ in range(30):
        known = learnt(known, fast.looked_at(1), 1, CORES)
    assert speeds(known) == pytest.approx({1: 1000}, rel=0.1)


def test_waiting_among_a_job_s_processes_is_learnt_while_cores_are_free() -> None:
    """The worker computes for 1.6 of 2 seconds although cores are free."""
    known = prior(examined("a"))
    for _ in range(15):
        known = learnt(known, look(2.0, 1000.0, worker_cpu_s=1.6, all_cpu_s=1.8, workers=1, host_share=0.3), 1, CORES)
    assert known.efficiency == pytest.approx(0.8, abs=0.05)
    assert speeds(known) == pytest.approx({1: 500}, rel=0.05)


def test_what_was_learnt_follows_a_job_whose_cost_changes() -> None:
    known = after(Truth(worker_cpu_s=1e-3), 50)
    for _ in range(30):
        known = learnt(known, Truth(worker_cpu_s=4e-3, all_cpu_s=4.4e-3).looked_at(1), 1, CORES)
    assert speeds(known) == pytest.approx({1: 250}, rel=0.1)


@pytest.mark.parametrize("nothing", [look(samples=0.0), look(seconds=0.0)])
def test_a_look_without_samples_or_time_is_ignored(nothing: JobSample) -> None:
    assert learnt(KNOWN, nothing, 1, CORES) == KNOWN


@given(
    looks=st.lists(
        st.builds(
            JobSample,
            seconds=st.floats(0.1, 10),
            samples=st.integers(0, 10**6).map(float),
            worker_cpu_s=st.floats(0, 40),
            all_cpu_s=st.floats(0, 40),
            workers=st.integers(1, 8),
            host_share=st.floats(0, 2),
        ),
        max_size=8,
    )
)
def test_whatever_is_measured_a_job_keeps_a_positive_speed(looks: list[JobSample]) -> None:
    known = prior(examined("a"))
    for one in looks:
        known = learnt(known, one, 1, CORES)
    assert 0.2 <= known.efficiency <= 1
    assert known.all_cpu_s >= known.worker_cpu_s >= 0
    assert all(mode.samples_per_s > 0 for mode in modes_of(examined("a", least=1, most=3), known, POWER))


# --- GPUs -------------------------------------------------------------------------------------------------------------


def on_gpu(gpu_s: float, samples: float = 2000.0, seconds: float = 2.0, share: float = 0.3) -> JobSample:
    """One worker that computes for half of the time and waits for the GPU."""
    return JobSample(seconds, samples, 0.5 * seconds, 0.6 * seconds, 1, 0.2, gpu_s, 0.5 * gpu_s, share)


def test_measured_gpu_seconds_of_a_sample_become_the_demand() -> None:
    known = prior(examined("a"))
    sizes = (MemoryOfSize(1, 100 * MB, 600 * MB),)
    there = msgspec.structs.replace(examined("a"), memory=sizes, most_workers=1, row_bytes=6000)
    assumed = modes_of(there, known, HostPower(CORES, 1e10))[0]
    assert assumed.is_gpu and assumed.demand[3] > 0
    for _ in range(20):
        known = learnt(known, on_gpu(0.4), 1, CORES)
    assert known.gpu_s == pytest.approx(0.2e-3)
    mode = modes_of(there, known, HostPower(CORES, 1e10))[0]
    assert mode.demand[3:] == pytest.approx(
        (mode.samples_per_s * 0.2e-3, mode.samples_per_s * 0.1e-3, mode.samples_per_s * 2 * 6000 / 12e9)
    )


def test_the_measured_traffic_to_a_gpu_becomes_the_demand_of_its_link() -> None:
    sizes = (MemoryOfSize(1, 100 * MB, 600 * MB),)
    there = msgspec.structs.replace(examined("a"), memory=sizes, most_workers=1, row_bytes=6000)
    look, power = msgspec.structs.replace(on_gpu(0.4), link_bytes=2000.0 * 50_000), HostPower(CORES, 1e10)
    known = learnt(prior(examined("a")), look, 1, CORES)
    assert known.link_bytes == pytest.approx(50_000)
    assert learnt(known, on_gpu(0.4), 1, CORES).link_bytes == known.link_bytes, "others used the GPU too"
    mode = modes_of(there, known, power)[0]
    assert mode.demand[5] == pytest.approx(mode.samples_per_s * 50_000 / 12e9)
    fast = msgspec.structs.replace(power, link_bytes_per_s=48e9)
    assert modes_of(there, known, fast)[0].demand[5] == pytest.approx(mode.demand[5] / 4)
    assert basis_of(known, power)[5] == "measured"
    assert basis_of(msgspec.structs.replace(known, gpu_s=None), power)[5] == "estimated"


def test_a_gpu_that_a_job_keeps_busy_limits_its_speed() -> None:
    sizes = (MemoryOfSize(1, 100 * MB, 600 * MB),)
    there = msgspec.structs.replace(examined("a"), memory=sizes, most_workers=1)
    known = Known(1e-6, 1e-6, seconds=20.0, gpu_s=1e-3)
    assert modes_of(there, known, HostPower(CORES, 1e10))[0].samples_per_s == pytest.approx(1000.0)


def test_nothing_is_learnt_of_the_reader_while_the_gpu_is_busy() -> None:
    known = learnt(prior(examined("a")), on_gpu(0.4, share=0.97), 1, CORES)
    assert known.reader_samples_per_s == 0
    assert learnt(prior(examined("a")), on_gpu(0.4), 1, CORES).reader_samples_per_s == 1000


def test_a_job_with_a_stated_slow_reader_is_assumed_to_need_less_of_the_gpu() -> None:
    sizes = (MemoryOfSize(1, 100 * MB, 600 * MB),)
    there = msgspec.structs.replace(examined("a"), memory=sizes, most_workers=1)
    power = HostPower(CORES, 1e10)
    waiting = msgspec.structs.replace(there, reader_samples_per_s=100.0)
    assert (
        modes_of(waiting, prior(waiting), power)[0].demand[3] < 0.5 * modes_of(there, prior(there), power)[0].demand[3]
    )


# --- what is read -----------------------------------------------------------------------------------------------------

SOURCE = HostPower(CORES, 1e10, input_bytes_per_s=1e6)


def waits(samples: float, share: float = 0.9, read_bytes: float | None = None, busy: float = 0.1) -> JobSample:
    """Two seconds of a worker that waits this share of its time for its input."""
    cpu_s = samples * 1e-3
    return JobSample(2.0, samples, cpu_s, cpu_s, 1, busy, read_bytes=read_bytes, input_wait_s=2.0 * share)


def test_the_input_is_the_bytes_of_a_sample_as_a_share_of_the_capacity() -> None:
    known = learnt(prior(examined()), waits(200, read_bytes=200 * 5000.0), 1, CORES)
    assert known.read_bytes == pytest.approx(5000) and known.wait_share == pytest.approx(0.9, rel=0.2)
    assert modes_of(examined(), known, POWER)[0].demand[2] == 0.0
    (mode,) = modes_of(examined(), known, SOURCE)
    assert mode.samples_per_s == pytest.approx(100) and mode.demand[2] == pytest.approx(0.5)
    slower = HostPower(CORES, 1e10, input_bytes_per_s=0.25e6)
    (mode,) = modes_of(examined(), known, slower)
    assert mode.samples_per_s == pytest.approx(50) and mode.demand[2] == pytest.approx(1.0)


def test_a_rate_beside_others_that_wait_is_a_lower_bound_of_the_reader() -> None:
    beside = learnt(prior(examined()), waits(200, read_bytes=1e6), 1, CORES, is_contested=True)
    assert beside.reader_samples_per_s == pytest.approx(100) and beside.is_reader_shared
    slower = learnt(beside, waits(50, read_bytes=0.25e6), 1, CORES, is_contested=True)
    assert slower.reader_samples_per_s == pytest.approx(100)
    assert modes_of(examined(), slower, POWER)[0].samples_per_s == pytest.approx(100)
    wide = HostPower(CORES, 1e10, input_bytes_per_s=4e6)  # 5000 bytes a sample: 800 samples/s, and it computes 1000
    assert modes_of(examined(), slower, wide)[0].samples_per_s == pytest.approx(800)
    alone = learnt(slower, waits(600, read_bytes=3e6), 1, CORES)
    assert alone.reader_samples_per_s == pytest.approx(300) and not alone.is_reader_shared
    assert modes_of(examined(), alone, wide)[0].samples_per_s == pytest.approx(300)


def test_a_worker_that_waits_for_others_than_its_input_says_nothing_of_its_reader() -> None:
    known = learnt(prior(examined()), waits(200, share=0.05), 1, CORES)
    assert known.reader_samples_per_s == 0.0 and known.efficiency < 1.0


def test_counted_traffic_replaces_the_estimate_from_rows() -> None:
    counted = msgspec.structs.replace(waits(200, share=0.0), traffic_bytes=200 * 2e6)
    known = learnt(prior(examined(row_bytes=1000)), counted, 1, CORES)
    (mode,) = modes_of(examined(row_bytes=1000), known, POWER)
    assert mode.demand[1] == pytest.approx(mode.samples_per_s * 2e6 / 1e10)


def test_the_origin_of_each_demand() -> None:
    guessed = prior(examined())
    assert basis_of(guessed, POWER) == ("estimated", "estimated", "unlimited", "estimated", "estimated", "estimated")
    assert basis_of(guessed, SOURCE)[2] == "estimated"
    known = msgspec.structs.replace(KNOWN, read_bytes=1.0, traffic_bytes=1.0, gpu_s=1e-3)
    assert basis_of(known, SOURCE) == ("measured",) * 5 + ("estimated",)
    assert len(basis_of(known, SOURCE)) == len(RESOURCES)
