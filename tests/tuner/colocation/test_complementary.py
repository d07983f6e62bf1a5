"""The default policy: the job that adds most starts, no job is slowed too much or starves, the longest is first."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from elastichost.tuner.colocation import complementary
from elastichost.tuner.colocation.corrections import Corrections, PairCorrection
from elastichost.tuner.colocation.facts import (
    CPU,
    GpuCapacity,
    HostCapacity,
    JobDemand,
    PlacedJob,
    Placement,
    Start,
)
from elastichost.tuner.colocation.policies import WaitReason, dispatch, predicted, why_waiting
from elastichost.tuner.colocation.settings import ColocationSettings
from elastichost.tuner.colocation.speeds import bound, demand_matrix, speeds, values, worth
from tests.tuner.colocation.fluid import run
from tests.tuner.colocation.jobs import GB, GPU_HOST, HOST, gpu_mode, job, mode, placed

DEFAULT = ColocationSettings()


def words_of(told: dict[str, WaitReason]) -> dict[str, str]:
    return {name: reason.text for name, reason in told.items()}


def started(
    waiting: list[JobDemand],
    running: list[PlacedJob] | None = None,
    host: HostCapacity = HOST,
    now_s: float = 0.0,
    settings: ColocationSettings = DEFAULT,
    corrections: Corrections | None = None,
) -> tuple[Start, ...]:
    return dispatch(waiting, running or [], host, settings, corrections or Corrections(), now_s)


def names(starts: tuple[Start, ...]) -> list[str]:
    return [start.job for start in starts]


def test_the_job_that_complements_the_running_ones_starts_first() -> None:
    runs = [placed(job("r", mode(0.9, 0.1)))]
    dense, embedding = job("dense", mode(0.9, 0.1), seconds=500.0), job("embedding", mode(0.1, 0.9))
    assert names(started([dense, embedding], runs))[0] == "embedding"


def reading_job(name: str, seconds: float = 500.0) -> JobDemand:
    return msgspec.structs.replace(job(name, mode(0.05), kind="input", seconds=seconds), waits_for_unknown=True)


def test_a_job_that_computes_passes_one_that_may_share_a_full_source() -> None:
    """Until it is known whether readers slow each other, memory is not filled with jobs that wait."""
    runs, dense = [placed(reading_job("r"))], job("dense", mode(0.8))
    assert names(started([reading_job("more"), dense], runs)) == ["dense", "more"]
    known = msgspec.structs.replace(reading_job("more"), waits_for_unknown=False)
    assert names(started([known, dense], runs))[0] == "more"
    assert names(started([reading_job("more"), dense], [placed(job("r", mode(0.05)))]))[0] == "more"
    untracked = msgspec.structs.replace(DEFAULT, input_tracking=False)
    assert names(started([reading_job("more"), dense], runs, settings=untracked))[0] == "more"


def test_where_all_jobs_wait_for_their_input_all_of_them_start() -> None:
    waiting = [reading_job(f"w{number}") for number in range(5)]
    assert len(started(waiting, [placed(reading_job("r"))])) == 5


def test_a_job_that_would_add_little_does_not_pass_one_that_may_add_much() -> None:
    runs = [placed(reading_job("r")), placed(job("busy", mode(0.8)))]
    little = job("little", mode(0.6), seconds=100.0)
    assert names(started([little, reading_job("more")], runs))[0] == "more"


def test_the_first_start_is_the_largest_gain() -> None:
    """The gain agrees with W(S + j) - W(S), computed job by job."""
    rng = np.random.default_rng(4)
    settings = msgspec.structs.replace(DEFAULT, near_gain=0.0)
    for _ in range(6):
        waiting = [job(f"w{at}", mode(*rng.random(3)), mode(*rng.random(3), speed=70.0)) for at in range(12)]
        runs = [placed(job(f"r{at}", mode(*rng.random(3) * 0.4))) for at in range(3)]

        def total(present: list[PlacedJob]) -> float:
            return worth(values(present), speeds(demand_matrix(present, 0)))

        gains = {
            (one.job, at): total([*runs, placed(one, at)]) - total(runs)
            for one in waiting
            for at in range(2)
            if speeds(demand_matrix([*runs, placed(one, at)], 0)).min() >= settings.least_speed
        }
        best = max(gains, key=lambda way: gains[way])
        starts = started(waiting, runs, settings=settings)
        if gains[best] < settings.least_gain:
            assert starts == ()
        else:
            assert (starts[0].job, starts[0].placement.mode) == best
            assert f"({gains[best]:+.2f})" in starts[0].reason


def test_the_choice_among_many_candidates_is_the_same_as_among_few() -> None:
    """The estimate that leaves out most candidates does not lose the best one."""
    rng = np.random.default_rng(5)
    host = HostCapacity(16, 400 * GB, tuple(GpuCapacity(at, 80 * GB) for at in range(4)))
    runs = [placed(job(f"r{at}", gpu_mode(rng.random() * 0.6, rng.random() * 0.3)), device=at % 4) for at in range(6)]
    for _ in range(4):
        waiting = [
            job(f"w{at}", mode(*rng.random(3) * 0.3, speed=80.0), gpu_mode(rng.random(), rng.random()))
            for at in range(40)
        ]
        first = started(waiting, runs, host)[:1]
        looks = [started([one], runs, host)[:1] for one in waiting]
        alone = max((look[0] for look in looks if look), key=_gain)
        assert _gain(first[0]) >= _gain(alone) - DEFAULT.near_gain - 0.05


def _gain(start: Start) -> float:
    return float(start.reason.partition("(")[2].partition(")")[0])


def test_no_start_below_the_least_speed_or_the_least_gain() -> None:
    runs = [placed(job("r", mode(1.0)))]
    assert names(started([job("a", mode(0.5))], runs)) == ["a"]
    assert started([job("a", mode(1.0))], runs) == ()
    told = words_of(why_waiting([job("a", mode(1.0))], runs, HOST, DEFAULT, Corrections(), 0.0))
    assert told == {"a": "would add +0.00 to the total speed of the host; at least 0.05 is required"}
    three = [placed(job(f"r{at}", mode(0.3, 1.0))) for at in range(2)]
    told = words_of(why_waiting([job("a", mode(0.0, 1.0))], three, HOST, DEFAULT, Corrections(), 0.0))
    assert told["a"].endswith("would run at 0.33 of its speed alone; at least 0.35 is required")


def test_among_nearly_equal_gains_the_job_with_most_left_is_first() -> None:
    jobs = [job("short", mode(0.3)), job("long", mode(0.32), seconds=900.0), job("middle", mode(0.31), seconds=300.0)]
    assert names(started(jobs)) == ["long", "middle", "short"]
    far = [job("short", mode(0.1)), job("long", mode(1.0), seconds=900.0)]
    runs = [placed(job("r", mode(0.7)))]
    assert names(started(far, runs))[0] == "short", "0.9 and 0.3 are not near"


def test_the_longest_is_not_left_to_the_end() -> None:
    jobs = [job(f"j{at}", mode(0.5), seconds=20.0) for at in range(8)] + [job("long", mode(0.5), seconds=80.0)]
    ran = run(jobs, HOST, DEFAULT)
    assert ran.started_s["long"] == 0.0
    assert ran.makespan_s == pytest.approx(bound(jobs, HOST).least_s, rel=0.05)


def test_weight_counts() -> None:
    light, heavy = job("light", mode(0.5)), msgspec.structs.replace(job("heavy", mode(0.55)), weight=3.0)
    runs = [placed(job("r", mode(0.8)))]
    assert names(started([light, heavy], runs))[0] == "heavy"


def test_corrections_decide_too() -> None:
    runs = [placed(job("r", mode(0.4), kind="dense"))]
    jobs = [job("a", mode(0.3), kind="embedding"), job("b", mode(0.3), kind="input")]
    bad = Corrections((PairCorrection("dense", "embedding", -0.5),))
    assert names(started(jobs, runs))[0] == "a"
    first = started(jobs, runs, corrections=bad)[0]
    assert first.job == "b"
    alone = started(jobs[:1], runs, corrections=bad)
    assert alone[0].speeds == {"r": pytest.approx(0.6065, abs=1e-3), "a": pytest.approx(0.6065, abs=1e-3)}
    assert predicted(runs, HOST, bad) == {"r": 1.0}
    paused = msgspec.structs.replace(placed(jobs[0]), is_paused=True)
    assert predicted([*runs, paused], HOST, bad) == {"r": 1.0}, "a paused job is not a neighbour"


def test_a_neighbour_of_an_unknown_kind_speeds_up_no_job() -> None:
    """With a plain mean over neighbours, a third job would halve the correction of two that slow each other."""
    runs = [placed(job(name, mode(0.2), kind="dense")) for name in ("r", "s")]
    bad = Corrections((PairCorrection("dense", "dense", -0.7),))
    told = words_of(why_waiting([job("a", mode(0.9), kind="input")], runs, HOST, DEFAULT, bad, 0.0))
    speed = speeds(demand_matrix([*runs, placed(job("a", mode(0.9), kind="input"))], 0))
    before = 2 * np.exp(-0.7)
    gain = float(speed[:2].sum() * np.exp(-0.7) + speed[2] - before)
    assert told == {"a": f"is next: {started([job('a', mode(0.9), kind='input')], runs, corrections=bad)[0].reason}"}
    assert f"total speed of the host {before:.2f} -> {before + gain:.2f}" in told["a"]


def test_the_estimate_does_not_change_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The starts with and without the estimate are the same."""
    rng = np.random.default_rng(6)
    waiting = [job(f"w{at}", mode(*rng.random(3) * 0.5)) for at in range(70)]
    runs = [placed(job("r", mode(0.3, 0.5)))]
    host = HostCapacity(4, 500 * GB)
    few = started(waiting, runs, host)
    monkeypatch.setattr(complementary, "FINALISTS", 1000)
    assert names(few) == names(started(waiting, runs, host))


# --- GPUs -------------------------------------------------------------------------------------------------------------


def test_gpus_are_filled_evenly() -> None:
    jobs = [job(f"j{at}", gpu_mode(0.4, 0.2, gpu_memory=1.0)) for at in range(4)]
    starts = started(jobs, host=GPU_HOST)
    assert [start.placement.device for start in starts] == [0, 1, 0, 1]


def test_the_cpu_is_used_if_it_adds_most_but_not_by_a_job_that_would_end_last() -> None:
    both = job("both", mode(0.3, speed=200.0), gpu_mode(1.0, 0.1, speed=400.0))
    full = [placed(job(f"g{at}", gpu_mode(1.0, 0.1), seconds=2000.0), device=at) for at in range(2)]
    assert [start.placement for start in started([both], full, GPU_HOST)] == [Placement(0)]
    ending = [placed(job(f"g{at}", gpu_mode(0.9, 0.6, gpu_memory=8.0), seconds=50.0), device=at) for at in range(2)]
    assert started([both], ending, GPU_HOST) == ()
    told = words_of(why_waiting([both], ending, GPU_HOST, DEFAULT, Corrections(), 0.0))
    assert told == {"both": "on the CPU it would end after all other jobs, and no GPU is free for it"}
    assert [start.placement.device for start in started([both], [], GPU_HOST)] == [0]


def test_a_gpu_mode_that_never_fits_the_host_memory_delays_nothing() -> None:
    """Its GPU mode never fits, so the job may start on the CPU."""
    both = job("both", mode(0.3, speed=200.0), gpu_mode(speed=400.0, memory=50.0))
    assert [start.placement for start in started([both], [], GPU_HOST)] == [Placement(0)]


def test_a_job_without_a_gpu_mode_may_end_last() -> None:
    ending = [placed(job("g", gpu_mode(), seconds=1.0), device=0)]
    assert started([job("a", mode(0.3))], ending, GPU_HOST)[0].placement == Placement(0, CPU)


# --- no job starves ---------------------------------------------------------------------------------------------------


def test_a_job_that_waited_long_needs_less_gain() -> None:
    runs = [placed(job("r", mode(1.0, 0.0)))]
    late = job("a", mode(0.98, 0.02))
    assert started([late], runs, now_s=10.0) == ()
    assert names(started([late], runs, now_s=600.0)) == ["a"]
    hopeless = job("a", mode(1.0, 1.0))
    rows = [placed(job("r", mode(0.5, 0.5))), placed(job("q", mode(0.5, 0.4)))]
    assert started([hopeless], rows, now_s=1e6) == (), "it must not make the host slower"


def test_of_equal_jobs_the_one_that_waited_longer_starts_first() -> None:
    runs = [placed(job("r", mode(0.8, 0.1)))]
    early, late = job("early", mode(0.4, 0.1)), job("late", mode(0.3, 0.1), arrived_s=580.0)
    exact = ColocationSettings(near_gain=0.0)
    assert names(started([late, early], runs, now_s=590.0, settings=exact))[0] == "early"
    assert (
        names(started([late, early], runs, now_s=590.0, settings=ColocationSettings(near_gain=0.0, aging_gain=0.0)))[0]
        == "late"
    )


def test_a_due_job_is_not_passed_by_jobs_after_its_batch() -> None:
    runs = [placed(job("r", mode(0.1, memory=5.0)))]
    large = job("large", mode(0.1, memory=6.0))
    later, batch = (
        job("later", mode(0.1, memory=0.1), arrived_s=300.0),
        job("batch", mode(0.1, memory=0.1), arrived_s=30.0),
    )
    assert names(started([large, later], runs, now_s=599.0)) == ["later"]
    assert names(started([large, later, batch], runs, now_s=600.0)) == ["batch"]
    told = words_of(why_waiting([large, later], runs, HOST, DEFAULT, Corrections(), 600.0))
    assert told["later"] == "jobs that arrived at least 60 s earlier have waited long and start first"
    assert told["large"] == "needs 6,866.5 MiB of memory, 3,814.7 MiB of 9,536.7 MiB are free"


def test_in_a_stream_of_small_jobs_a_large_one_starts() -> None:
    small = [job(f"s{at}", mode(0.4, memory=2.0), seconds=60.0, arrived_s=at * 20.0) for at in range(30)]
    large = job("large", mode(0.9, memory=9.5), seconds=50.0, arrived_s=5.0)
    patient = msgspec.structs.replace(DEFAULT, patience_s=100.0, batch_s=10.0)
    # two jobs that arrived with it run first; then it is due and waits until the running jobs end
    assert run([*small, large], HOST, patient).started_s["large"] < 100 + 4 * 60 / patient.least_speed
    passed = run([*small, large], HOST, msgspec.structs.replace(DEFAULT, patience_s=1e9))
    assert passed.started_s["large"] > 600.0, "without patience it starts last"


def test_while_a_job_waits_for_an_empty_host_jobs_start_that_end_before() -> None:
    alone = msgspec.structs.replace(job("alone", mode(0.1)), exclusive=True)
    runs = [placed(job("r", mode(0.1), seconds=100.0))]
    quick, slow = job("quick", mode(0.1), seconds=90.0), job("slow", mode(0.1), seconds=110.0)
    assert names(started([alone, slow, quick], runs)) == ["quick"]
    told = words_of(why_waiting([alone, slow], runs, HOST, DEFAULT, Corrections(), 0.0))
    assert told["slow"] == "alone must run alone and waits until the host is empty"


# --- a batch ----------------------------------------------------------------------------------------------------------


def batch(kinds: list[str], seed: int) -> list[JobDemand]:
    """24 jobs on 2 cores as in the benchmark: some minutes long, with one or two workers."""
    rng = np.random.default_rng(seed)
    made = []
    for at in range(24):
        kind = kinds[at % len(kinds)]
        cores, bandwidth = {"input": (0.08, 0.03), "embedding": (0.5, 0.55), "dense": (0.5, 0.12)}[kind]
        cores, bandwidth = cores * rng.uniform(0.8, 1.2), bandwidth * rng.uniform(0.8, 1.2)
        size = rng.uniform(0.3, 0.8)
        modes = [mode(cores, bandwidth, 0.02, memory=size)]
        if kind != "input":
            both = mode(min(1.0, 2 * cores), min(1.0, 1.6 * bandwidth), 0.03, speed=100 * rng.uniform(1.3, 1.8))
            modes.append(msgspec.structs.replace(both, workers=2, memory_bytes=round(1.3 * size * GB)))
        made.append(job(f"{kind}{at}", *modes, kind=kind, seconds=float(rng.lognormal(np.log(60), 0.6))))
    return made


SMALL_HOST = HostCapacity(2, 8 * GB)


@pytest.mark.parametrize("seed", [11, 12])
def test_mixed_batches_end_near_the_bound_and_earlier_than_with_other_policies(seed: int) -> None:
    jobs = batch(["input", "embedding", "dense"], seed)
    least_s = bound(jobs, SMALL_HOST).least_s
    ours = run(jobs, SMALL_HOST, DEFAULT).makespan_s
    assert least_s <= ours <= least_s / 0.85
    for policy in ("rmixer_type", "fifo", "random", "exclusive"):
        assert ours < run(jobs, SMALL_HOST, ColocationSettings(policy=policy)).makespan_s


def test_input_bound_batches_gain_most() -> None:
    jobs = batch(["input"], 13)
    found, ran = bound(jobs, SMALL_HOST), run(jobs, SMALL_HOST, DEFAULT)
    assert found.sequential_s / ran.makespan_s > 5
    assert ran.makespan_s <= found.least_s / 0.8
