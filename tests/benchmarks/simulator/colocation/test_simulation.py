"""Many jobs on one simulated host: work is neither gained nor lost, and true speeds never exceed the capacity."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.colocate_simulated import benchmark as colocate_simulated
from benchmarks.colocate_simulated.figures import Results, figures_of
from benchmarks.colocate_simulated.plan import ALONE, OURS, PARTS, SEQUENTIAL, Plan, play, tasks_of, tightest_s
from benchmarks.simulator.colocation import calibration
from benchmarks.simulator.colocation.beliefs import DispatcherBeliefs, true_demand
from benchmarks.simulator.colocation.interference import ComputingJob, InterferenceModel, draw_pair_costs
from benchmarks.simulator.colocation.jobs import MIXES, SITES, JobBatch, JobFamily, SimulatedHost, draw_batch
from benchmarks.simulator.colocation.simulation import simulate_batch
from elastichost.tuner.colocation.facts import CPU, GpuCapacity, HostCapacity, PolicyName
from elastichost.tuner.colocation.kinds import KINDS
from elastichost.tuner.colocation.settings import ColocationSettings
from elastichost.tuner.colocation.speeds import bound

GB = 10**9
QUIET = ColocationSettings(feedback=False)
POLICIES: tuple[PolicyName, ...] = ("exclusive", "fifo", "random", "rmixer_type", "complementary")


def site(gpus: int, *, has_mps: bool = False) -> SimulatedHost:
    return msgspec.structs.replace(SITES[gpus], has_mps=has_mps)


def family(kernel: float = 0.5, occupancy: float = 0.3, **costs: float) -> JobFamily:
    """A family of jobs that are limited by their GPU, unless `costs` say otherwise."""
    drawn = draw_batch(1, "balanced", site(1), 4).jobs[0].family
    of = calibration.SampleCosts(
        **{
            "read_cpu": 0.01,
            "read_wait": 0.0,
            "read_input": 0.0,
            "launch": 0.0,
            "copy": 0.0,
            "kernel": kernel,
            "occupancy": occupancy,
            "gpu_bandwidth": 0.1,
            "compute": 1.0,
            "stall": 0.0,
            "table_bytes": 1e9,
            **costs,
        }
    )
    return msgspec.structs.replace(drawn, costs=of)


def crowd(seed: int, gpus: int, count: int) -> tuple[list[ComputingJob], np.random.Generator]:
    """Jobs of all kinds in random sizes on random devices, and the random generator."""
    random = np.random.default_rng(seed)
    placed = []
    for job in draw_batch(seed, "balanced", SITES[gpus], count).jobs:
        size = job.family.sizes[int(random.integers(len(job.family.sizes)))]
        device = int(random.integers(gpus)) if size.is_gpu else CPU
        placed.append(ComputingJob(job.family, size, device, bool(random.random() < 0.2)))
    return placed, random


def used(placed: Sequence[ComputingJob], rates: Sequence[float], at: SimulatedHost) -> dict[str, float]:
    """The used share of each resource, computed from the costs of a sample."""
    cores = at.room.cores
    found = {"cores": 0.0, "bandwidth": 0.0, "input": 0.0}
    for one, rate in zip(placed, rates, strict=True):
        costs = one.family.costs
        found["input"] += rate * costs.read_input * costs.input_share
        step = costs.launch
        if one.size.is_gpu:
            for name, cost in (
                ("gpu", costs.kernel * (costs.occupancy if at.has_mps else 1.0)),
                ("gpu bandwidth", costs.kernel * costs.gpu_bandwidth),
                ("link", costs.copy),
            ):
                found[f"{name} {one.device}"] = found.get(f"{name} {one.device}", 0.0) + rate * cost
        else:
            step = costs.compute * (1 + calibration.THREAD_OVERHEAD * (one.size.threads - 1))
            found["bandwidth"] += rate * step * costs.stall / (calibration.STALLED_THREADS * cores)
        found["cores"] += rate * (costs.read_cpu + step) / cores
    return found


# --- true speeds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_mps", [False, True])
@pytest.mark.parametrize("seed", range(1, 7))
def test_no_resource_exceeds_its_capacity_and_no_job_is_faster_than_alone(seed: int, has_mps: bool) -> None:
    at = site(4 if seed % 2 else 1, has_mps=has_mps)
    truth = InterferenceModel(at, draw_pair_costs(seed))
    placed, random = crowd(seed, len(at.room.gpus), 40)
    for count in (1, 2, 5, 12, 40):
        some = [placed[index] for index in random.permutation(40)[:count]]
        rates = truth.rates(some)
        alone = np.array([truth.alone(one.family, one.size).samples_per_s for one in some])
        assert (rates > 0).all() and (rates <= alone).all()
        # rates() caps the speeds; the solved network alone keeps them below this limit, too
        assert (truth._solved(truth._network(some))[0] <= alone * (1 + 1e-3)).all()
        for name, share in used(some, rates.tolist(), at).items():
            assert share <= 1 + 1e-4, f"{name} with {count} jobs"


def test_a_job_alone_has_its_own_speed() -> None:
    truth = InterferenceModel(site(1), draw_pair_costs(3))
    for job in draw_batch(3, "balanced", site(1), 12).jobs:
        for size in job.family.sizes:
            alone = truth.alone(job.family, size)
            assert truth.rates([ComputingJob(job.family, size, 0 if size.is_gpu else CPU)])[0] == alone.samples_per_s
            assert max(alone.demand) <= 1 and 0 <= alone.wait_share <= 1
            assert alone.demand == alone.used, "without MPS a kernel uses a whole GPU"


@pytest.mark.parametrize("count", [2, 3, 5])
def test_processes_take_turns_on_a_gpu_without_mps(count: int) -> None:
    """Mean value analysis of one station: each process gets 1 / n of it, less the cost of switching."""
    job = family(kernel=1.0)
    rates = InterferenceModel(site(1)).rates([ComputingJob(job, job.sizes[-1], 0)] * count)
    np.testing.assert_allclose(rates * count, 1 / (1 + calibration.GPU_SWITCH), rtol=1e-3)
    two = InterferenceModel(site(4)).rates([ComputingJob(job, job.sizes[-1], 0), ComputingJob(job, job.sizes[-1], 1)])
    np.testing.assert_allclose(two, 1.0, rtol=1e-6)  # each on its own GPU


def test_kernels_overlap_with_mps() -> None:
    job = family(kernel=1.0, occupancy=0.3)
    truth = InterferenceModel(site(1, has_mps=True))
    three = truth.rates([ComputingJob(job, job.sizes[-1], 0)] * 3)
    np.testing.assert_allclose(three, 1.0, rtol=1e-3)  # 0.9 of the GPU is filled
    ten = truth.rates([ComputingJob(job, job.sizes[-1], 0)] * 10)
    np.testing.assert_allclose(ten.sum() * 0.3, 1.0, rtol=1e-3)
    assert truth.alone(job, job.sizes[-1]).used[3] == pytest.approx(0.3 * truth.alone(job, job.sizes[-1]).demand[3])


def test_jobs_wait_for_each_other_before_a_gpu_is_full() -> None:
    """Two jobs need the GPU for half of their time each: mean value analysis of two customers, solved here by hand."""
    job = family(kernel=1.0, launch=1.0)
    rate = InterferenceModel(site(1)).rates([ComputingJob(job, job.sizes[-1], 0)] * 2)[0]
    # f = (1 + N) (1 + switch N), N = f / (1 + f)
    f = 1.0
    for _ in range(100):
        there = f / (1 + f)
        f = (1 + there) * (1 + calibration.GPU_SWITCH * there)
    assert rate == pytest.approx(1 / (1 + f), rel=1e-3)
    assert rate < 0.5, "0.5 is the speed of a job alone"


def test_a_slow_reader_hides_a_slower_step() -> None:
    reading = family(kernel=0.1, read_cpu=1.0)
    truth = InterferenceModel(site(1))
    rates = truth.rates([ComputingJob(reading, reading.sizes[-1], 0)] * 4)
    np.testing.assert_allclose(rates, truth.alone(reading, reading.sizes[-1]).samples_per_s, rtol=1e-3)


def test_weights_decide_only_where_no_core_is_idle() -> None:
    job = family(compute=1.0)
    truth, four = InterferenceModel(site(1)), job.sizes[2]
    alone = truth.alone(job, four).samples_per_s
    few = truth.rates([ComputingJob(job, four), ComputingJob(job, four, is_lowered=True)])
    np.testing.assert_allclose(few, alone, rtol=1e-2)
    many = truth.rates([*[ComputingJob(job, four)] * 6, ComputingJob(job, four, is_lowered=True)])
    evenly = truth.rates([ComputingJob(job, four)] * 7)
    assert many[-1] < 0.4 * evenly[0] and many[0] > evenly[0]


def test_shared_caches_have_costs_by_pair_of_kinds() -> None:
    pairs = draw_pair_costs(5)
    assert pairs.cpu.shape == (len(KINDS), len(KINDS)) and not np.allclose(pairs.cpu, pairs.cpu.T)
    job = family(compute=1.0)
    beside = [ComputingJob(job, job.sizes[2])] * 2
    assert InterferenceModel(site(1), pairs).rates(beside)[0] < InterferenceModel(site(1)).rates(beside)[0]


# --- batches and beliefs ----------------------------------------------------------------------------------------------


def test_batches_are_drawn_by_seed() -> None:
    one, again, other = (draw_batch(seed, "input_bound", SITES[1], 30) for seed in (4, 4, 5))
    assert one == again and one != other
    with_mps = draw_batch(4, "input_bound", site(1, has_mps=True), 30)
    assert with_mps.jobs == one.jobs
    families = {job.family.family: job.family for job in one.jobs}
    assert len(families) == 10 and len({job.job for job in one.jobs}) == 30
    assert sum(of.kind == "input" for of in families.values()) == round(10 * MIXES["input_bound"][0])
    for of in families.values():
        assert of.share_of_peak(1.0) == 1.0 > of.share_of_peak(0.999) > of.share_of_peak(0.1) > 0
        progress = np.linspace(0, 1, 20001)[:-1]
        trained = np.mean([of.share_of_peak(float(at)) for at in progress])
        whole = (trained + calibration.EVALUATION) / (1 + calibration.EVALUATION)
        assert of.mean_share_of_peak == pytest.approx(whole, rel=1e-3)


def test_estimates_approach_the_truth_and_jobs_of_a_family_share_them() -> None:
    batch = draw_batch(2, "balanced", SITES[1], 24)
    truth = InterferenceModel(batch.site)
    beliefs = DispatcherBeliefs(batch, truth)

    def errors(is_gpu: bool) -> list[float]:
        found = []
        for job in batch.jobs:
            for size, mode in zip(job.family.sizes, beliefs.of(job.family).modes, strict=True):
                if size.is_gpu == is_gpu:
                    found.append(abs(math.log(mode.samples_per_s / truth.alone(job.family, size).samples_per_s)))
        return found

    before, before_gpu = np.median(errors(False)), np.median(errors(True))
    for of in {job.family.family: job.family for job in batch.jobs}.values():
        assert not beliefs.is_measured(of, is_gpu=True)
        beliefs.learn(of, is_gpu=True, seconds=12.0)
        assert beliefs.is_measured(of, is_gpu=True) and not beliefs.is_measured(of, is_gpu=False)
    assert np.median(errors(False)) == before, "measurements on a GPU do not change estimates for the CPU"
    assert before_gpu > 0.1 and np.median(errors(True)) < 0.1
    first = batch.jobs[0].family
    known = DispatcherBeliefs(batch, truth, doubt=0.0).of(first)
    assert known.modes[0].samples_per_s == truth.alone(first, first.sizes[0]).samples_per_s


# --- simulations ------------------------------------------------------------------------------------------------------


class Recording:
    """Records the work of all jobs together, and the largest used share of a resource."""

    def __init__(self, batch: JobBatch) -> None:
        self.site, self.work, self.most = batch.site, 0.0, 0.0

    def __call__(self, placed: Sequence[ComputingJob], seconds: float, rates: Sequence[float]) -> None:
        self.work += seconds * sum(rates)
        self.most = max(self.most, *used(placed, rates, self.site).values()) if placed else self.most


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_does_exactly_its_work(policy: PolicyName) -> None:
    batch = draw_batch(7, "balanced", SITES[1], 9)
    recording = Recording(batch)
    found = simulate_batch(batch, ColocationSettings(policy=policy, seed=1), recording)
    assert found.is_complete and found.decisions == sum(job.starts for job in found.jobs)
    for job in found.jobs:
        assert job.work - job.lost == pytest.approx(job.samples * (1 + calibration.EVALUATION), rel=1e-6)
        assert job.first_started_s is not None and job.slowdown >= 1 - 1e-6
    assert recording.work == pytest.approx(sum(job.work for job in found.jobs), rel=1e-9)
    assert recording.most <= 1 + 1e-4
    truth = InterferenceModel(batch.site)
    demands = [true_demand(one.job, one.family, truth, one.lasts_s) for one in batch.jobs]
    assert found.makespan_s >= tightest_s(demands, batch.site.room)


def test_jobs_one_after_another_take_the_sum_of_their_times() -> None:
    batch = draw_batch(6, "balanced", SITES[1], 9)
    found = simulate_batch(batch, ColocationSettings(policy="exclusive"), doubt=0.0)
    truth = InterferenceModel(batch.site)
    expected = 0.0
    for job in batch.jobs:
        fastest = max(job.family.sizes, key=lambda size: truth.alone(job.family, size).samples_per_s)
        expected += job.lasts_s + calibration.START_S + (calibration.START_GPU_S if fastest.is_gpu else 0.0)
    assert found.makespan_s == pytest.approx(expected, rel=1e-6)
    assert found.actions == {} and sum(job.starts for job in found.jobs) == 9


def test_the_same_seed_gives_the_same_result() -> None:
    batch = draw_batch(3, "input_bound", SITES[4], 10)
    assert simulate_batch(batch, ColocationSettings()) == simulate_batch(batch, ColocationSettings())
    other = simulate_batch(draw_batch(4, "input_bound", SITES[4], 10), ColocationSettings())
    assert other.makespan_s != simulate_batch(batch, ColocationSettings()).makespan_s


def with_estimates(batch: JobBatch, estimate: float) -> JobBatch:
    """The batch with estimates of memory that are this share of the true peaks."""
    jobs = [
        msgspec.structs.replace(job, family=msgspec.structs.replace(job.family, estimate=estimate))
        for job in batch.jobs
    ]
    return msgspec.structs.replace(batch, jobs=tuple(jobs))


def small_gpu(batch: JobBatch, gpu_bytes: int) -> JobBatch:
    room = HostCapacity(batch.site.room.cores, batch.site.room.memory_bytes, (GpuCapacity(0, gpu_bytes),))
    return msgspec.structs.replace(batch, site=SimulatedHost(room))


def test_jobs_are_killed_if_estimates_are_too_low_and_memory_does_not_limit_admission() -> None:
    batch = small_gpu(draw_batch(2, "input_bound", SITES[1], 9), 7 * GB)
    honest = simulate_batch(with_estimates(batch, 1.0), QUIET)
    assert honest.oom == {} and honest.is_complete
    lied = simulate_batch(with_estimates(batch, 0.4), msgspec.structs.replace(QUIET, memory_admission=False))
    assert lied.oom.get("gpu", 0) > 0 and sum(job.oom_kills for job in lied.jobs) == sum(lied.oom.values())
    assert lied.is_complete, "killed jobs must start again, alone"
    killed = [job for job in lied.jobs if job.oom_kills]
    assert all(job.starts > job.oom_kills for job in killed) and any(job.lost > 0 for job in killed)


def test_the_host_runs_out_of_memory_too() -> None:
    batch = draw_batch(2, "balanced", SITES[1], 8)
    batch = msgspec.structs.replace(batch, site=SimulatedHost(HostCapacity(16, 14 * GB)))
    sizes = {job.job: tuple(size for size in job.family.sizes if not size.is_gpu) for job in batch.jobs}
    jobs = [
        msgspec.structs.replace(job, family=msgspec.structs.replace(job.family, sizes=sizes[job.job], estimate=0.5))
        for job in batch.jobs
    ]
    lied = simulate_batch(
        msgspec.structs.replace(batch, jobs=tuple(jobs)), msgspec.structs.replace(QUIET, memory_admission=False)
    )
    assert lied.oom.get("host", 0) > 0


def test_an_evicted_job_goes_on_where_it_was() -> None:
    """Estimates are too low. Feedback evicts jobs before the GPU is full, so no work is lost."""
    batch = with_estimates(small_gpu(draw_batch(4, "input_bound", SITES[1], 10), 9 * GB), 0.45)
    found = simulate_batch(batch, ColocationSettings())
    assert sum(job.evictions for job in found.jobs) > 0 and found.oom == {} and found.is_complete
    assert all(job.lost == 0.0 and job.starts == 1 + job.evictions for job in found.jobs)


def test_constants_are_those_of_the_dispatcher() -> None:
    from elastichost.dispatcher.core import endings
    from elastichost.dispatcher.core import interference_control as tending

    assert (calibration.WINDOW_S, calibration.WARM_UP_S) == (tending.WINDOW_S, tending.WARM_UP_S)
    assert (calibration.REST_S, calibration.MOST_STARTS) == (endings.REST_S, endings.MOST_STARTS)


# --- the bound and the benchmark --------------------------------------------------------------------------------------


def test_the_linear_program_is_the_tighter_bound() -> None:
    for gpus in (1, 4):
        batch = draw_batch(1, "balanced", SITES[gpus], 20)
        truth = InterferenceModel(batch.site)
        demands = [true_demand(one.job, one.family, truth, one.lasts_s) for one in batch.jobs]
        tight = tightest_s(demands, batch.site.room)
        assert tight >= bound(demands, batch.site.room).least_s * (1 - 1e-9)
        one_mode = [msgspec.structs.replace(one, modes=one.modes[:1]) for one in demands]
        least = bound(one_mode, batch.site.room).least_s
        assert tightest_s(one_mode, batch.site.room) == pytest.approx(least, rel=1e-6)


TINY = Plan(parts=("input_bound",), seeds=2, first_seed=1, scale=0.25, arms=(SEQUENTIAL, ALONE, "fifo", OURS))


def test_arms_get_the_same_batches() -> None:
    tasks = list(tasks_of(TINY))
    assert {task.arm for task in tasks if task.gpus == 1} == {SEQUENTIAL, "fifo", OURS}
    played = [play(task) for task in tasks if task.gpus == 1]
    (setting,) = figures_of(played)
    assert (setting.part, setting.gpus, setting.jobs) == ("input_bound", 1, 5)
    by_arm = {name: [one.makespan_s for one in played if one.task.arm == name] for name in setting.arms}
    expected = np.exp(np.mean(np.log(np.array(by_arm[SEQUENTIAL]) / by_arm[OURS])))
    ours = setting.arms[OURS]
    assert ours.speedup is not None and ours.speedup.mean == pytest.approx(expected)
    assert setting.tight_bound is not None and setting.tight_bound >= ours.speedup.mean
    assert ours.of_bound.high <= 1 and ours.of_tight_bound.mean >= ours.of_bound.mean - 1e-9
    assert ours.over_ours is not None and ours.over_ours.low == ours.over_ours.high == 1.0
    assert len({one.tight_s for one in played}) == 2, "one batch a seed"


def test_quick(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(colocate_simulated, "QUICK", msgspec.structs.replace(TINY, seeds=1))
    assert colocate_simulated.main(["--quick", "--json", "--keep", str(tmp_path)]) == 0
    *tables, last = capsys.readouterr().out.splitlines()
    assert any("SIMULATED" in line for line in tables) and any("RMixer reports up to 7.5" in line for line in tables)
    results = msgspec.convert(json.loads(last)["figures"], Results)
    assert results.simulated and [setting.gpus for setting in results.settings] == [1, 4]

    def never(task: object) -> None:
        raise AssertionError(f"{task} was kept")

    monkeypatch.setattr(colocate_simulated, "play", never)
    assert colocate_simulated.main(["--quick", "--keep", str(tmp_path)]) == 0


def test_unknown_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert colocate_simulated.main(["--parts", "weather"]) == 2
    assert "unknown part 'weather'" in capsys.readouterr().err
    assert set(PARTS) == {"input_bound", "balanced", "input_bound_mps"}
