"""Which jobs start now under each policy, the rules of all policies, and why the others wait."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.colocation.corrections import Corrections, PairCorrection
from elastichost.tuner.colocation.facts import (
    CPU,
    GpuCapacity,
    HostCapacity,
    JobDemand,
    PlacedJob,
    Placement,
    PolicyName,
    Start,
)
from elastichost.tuner.colocation.placement_input import PlacementInput
from elastichost.tuner.colocation.policies import POLICIES, WaitReason, dispatch, why_waiting
from elastichost.tuner.colocation.settings import ColocationSettings
from tests.effort import examples
from tests.tuner.colocation.fluid import run
from tests.tuner.colocation.jobs import GB, GPU_HOST, HOST, gpu_mode, job, mode, placed

anyhow = pytest.mark.parametrize("policy", sorted(POLICIES))


def started(
    waiting: list[JobDemand],
    running: list[PlacedJob] | None = None,
    host: HostCapacity = HOST,
    policy: PolicyName = "complementary",
    now_s: float = 0.0,
    **others: object,
) -> tuple[Start, ...]:
    chosen = msgspec.convert({"policy": policy, **others}, ColocationSettings)
    return dispatch(waiting, running or [], host, chosen, Corrections(), now_s)


def names(starts: tuple[Start, ...]) -> list[str]:
    return [start.job for start in starts]


def waits(
    waiting: list[JobDemand], running: list[PlacedJob], policy: PolicyName = "complementary", **others: object
) -> dict[str, str]:
    chosen = msgspec.convert({"policy": policy, **others}, ColocationSettings)
    told = why_waiting(waiting, running, HOST, chosen, Corrections(), 0.0)
    return {name: reason.text for name, reason in told.items()}


# --- all policies -----------------------------------------------------------------------------------------------------


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[JobDemand], list[PlacedJob]]:
    share = st.floats(0.0, 1.0)

    def a_job(name: str) -> JobDemand:
        modes = []
        for _ in range(draw(st.integers(1, 3))):
            if draw(st.booleans()):
                modes.append(mode(draw(share), draw(share), memory=draw(st.floats(0.1, 50.0))))
            else:
                modes.append(gpu_mode(draw(share), gpu_memory=draw(st.floats(0.1, 12.0))))
        made = job(name, *modes, kind=draw(st.sampled_from(["dense", "input"])), seconds=draw(st.floats(0, 1e4)))
        return msgspec.structs.replace(made, arrived_s=draw(st.floats(0, 2000)), exclusive=draw(st.integers(0, 9)) == 0)

    waiting = [a_job(f"w{at}") for at in range(draw(st.integers(0, 5)))]
    running = []
    for at in range(draw(st.integers(0, 3))):
        one = a_job(f"r{at}")
        device = draw(st.integers(0, 1)) if one.modes[0].is_gpu else CPU
        running.append(placed(msgspec.structs.replace(one, exclusive=False), device=device))
    return waiting, running


@anyhow
@settings(max_examples=examples(30), deadline=None)
@given(scene=scenes(), now_s=st.floats(0, 5000))
def test_starts_fit_and_all_jobs_have_reasons(
    policy: PolicyName, scene: tuple[list[JobDemand], list[PlacedJob]], now_s: float
) -> None:
    waiting, running = scene
    chosen = ColocationSettings(policy=policy)
    starts = dispatch(waiting, running, GPU_HOST, chosen, Corrections(), now_s)
    assert starts == dispatch(waiting, running, GPU_HOST, chosen, Corrections(), now_s)
    by_name = {one.job: one for one in waiting}
    free = GPU_HOST.memory_bytes - sum(one.charged_bytes for one in running)
    free_gpu = [gpu.memory_bytes for gpu in GPU_HOST.gpus]
    for one in running:
        if one.placement.device != CPU:
            free_gpu[one.placement.device] -= one.charged_gpu_bytes
    present = list(running)
    for start in starts:
        new = by_name.pop(start.job)
        chosen_mode = new.modes[start.placement.mode]
        assert chosen_mode.is_gpu == (start.placement.device != CPU)
        assert chosen_mode.memory_bytes <= start.charged_bytes <= free
        free -= start.charged_bytes
        if chosen_mode.is_gpu:
            assert chosen_mode.gpu_memory_bytes <= start.charged_gpu_bytes <= free_gpu[start.placement.device]
            free_gpu[start.placement.device] -= start.charged_gpu_bytes
        assert not (present and new.exclusive)
        assert not any(other.demand.exclusive for other in present)
        present.append(PlacedJob(new, start.placement, start.charged_bytes, start.charged_gpu_bytes, now_s))
        assert "MiB free" in start.reason
        assert set(start.speeds) == {other.demand.job for other in present}
        assert all(0 < speed <= 1 for speed in start.speeds.values())
    reasons = why_waiting(list(by_name.values()), present, GPU_HOST, chosen, Corrections(), now_s)
    assert set(reasons) == set(by_name)
    assert all(reason.text for reason in reasons.values())


@anyhow
def test_on_an_empty_host_a_job_starts(policy: PolicyName) -> None:
    demanding = [job(f"j{at}", mode(1.0, 1.0, 1.0, memory=9.5)) for at in range(3)]
    assert len(started(demanding, policy=policy)) == 1
    assert started([job("never", mode(memory=11.0)), demanding[0]], policy=policy)[0].job == "j0"
    assert started([], policy=policy) == ()


@anyhow
def test_a_job_that_must_run_alone_gets_the_whole_host(policy: PolicyName) -> None:
    alone = msgspec.structs.replace(job("alone", mode(0.1, memory=9.5)), exclusive=True)
    other = job("other", mode(0.1, memory=0.1), seconds=1000.0)
    assert names(started([other, alone], policy=policy)) == ["alone"], "it is first in the queue"
    assert started([other], [placed(alone)], policy=policy) == ()
    assert started([alone, other], [placed(job("runs", mode(memory=0.1)))], policy=policy) == ()
    reasons = waits([alone, other], [placed(job("runs", mode(memory=0.1)))], policy)
    assert reasons["alone"] == "must run alone this time, and 1 job still runs"
    assert "alone" in reasons["other"]


@anyhow
def test_no_job_starts_beside_a_paused_one(policy: PolicyName) -> None:
    paused = msgspec.structs.replace(placed(job("p", mode(0.1, memory=0.1))), is_paused=True)
    assert started([job("a")], [paused], policy=policy) == ()
    assert waits([job("a")], [paused], policy) == {"a": "p is paused and resumes first"}


def test_a_job_paused_on_a_gpu_blocks_that_gpu() -> None:
    on_gpu = job("p", gpu_mode(0.1, gpu_memory=0.1))
    paused = msgspec.structs.replace(placed(on_gpu, device=0), is_paused=True)
    found = started([job("a", gpu_mode(0.1, gpu_memory=0.1)), job("b", mode(0.1))], [paused], GPU_HOST)
    assert {one.job: one.placement.device for one in found} == {"a": 1, "b": CPU}
    assert started([job("a")], [paused], GPU_HOST, memory_admission=False) == (), (
        "without memory admission no job starts"
    )


@anyhow
def test_an_evicted_job_rests_unless_no_job_runs(policy: PolicyName) -> None:
    rests = msgspec.structs.replace(job("a", mode(0.1)), not_before_s=100.0)
    runs = [placed(job("b", mode(0.1)))] if policy != "exclusive" else []
    if runs:
        assert started([rests], runs, policy=policy, now_s=99.0) == ()
        assert waits([rests], runs, policy) == {"a": "waits for another 100 s after its eviction"}
        assert names(started([rests], runs, policy=policy, now_s=100.0)) == ["a"]
    assert names(started([rests], policy=policy)) == ["a"]


@anyhow
def test_most_jobs_limits_the_running_jobs(policy: PolicyName) -> None:
    small = [job(f"j{at}", mode(0.01, memory=0.1)) for at in range(9)]
    expected = 1 if policy == "exclusive" else 3
    assert len(started(small, policy=policy, most_jobs=3)) == expected
    if policy != "exclusive":
        present = [placed(one) for one in small[:3]]
        assert waits(small[3:4], present, policy, most_jobs=3) == {"j3": "3 of at most 3 jobs run"}


def test_two_jobs_with_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two jobs have the same name"):
        started([job("a")], [placed(job("a"))])


def test_a_job_that_can_never_run_is_reported() -> None:
    never = {"m": job("m", mode(memory=11.0)), "g": job("g", gpu_mode())}
    assert waits(list(never.values()), []) == {
        "m": "can never run here: needs 10,490.4 MiB of memory, 9,536.7 MiB of 9,536.7 MiB are free",
        "g": "can never run here: it needs a GPU, and the host has none",
    }
    gpus = HostCapacity(4, 10 * GB, (GpuCapacity(0, GB),))
    told = why_waiting([job("g", gpu_mode(gpu_memory=2.0))], [], gpus, ColocationSettings(), Corrections(), 0.0)
    words = "can never run here: needs 1,907.3 MiB of GPU memory, at most 953.7 MiB are free on a GPU"
    assert told == {"g": WaitReason(words, for_ever=True)}


def test_a_job_waits_for_room_in_the_file_system_of_arenas() -> None:
    large = msgspec.structs.replace(mode(0.1), arena_bytes=2 * GB)
    host = msgspec.structs.replace(HOST, arena_bytes=3 * GB)
    told = why_waiting([job("a", large)], [placed(job("r", large))], host, ColocationSettings(), Corrections(), 0.0)
    words = "needs 1,907.3 MiB in the file system of arenas, 953.7 MiB of 2,861.0 MiB are free"
    assert told == {"a": WaitReason(words)}
    assert names(started([job("a", large), job("b", large)], host=host)) == ["a"]


@pytest.mark.parametrize("policy", ["fifo", "complementary"])
def test_reasons_look_once_for_a_job_that_must_run_alone(policy: PolicyName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each job that waits: a queue may have thousands."""
    in_order, calls = PlacementInput.in_order, list[int]()
    monkeypatch.setattr(PlacementInput, "in_order", lambda inputs: (calls.append(1), in_order(inputs))[1])

    def calls_for(jobs: int) -> int:
        calls.clear()
        alone = msgspec.structs.replace(job("alone", mode(0.1)), exclusive=True)
        waiting = [alone, *(job(f"j{at}", mode(0.1, memory=0.1), seconds=900.0) for at in range(jobs))]
        reasons = waits(waiting, [placed(job("r", mode(0.1)))], policy)
        assert all("alone must run alone" in reasons[f"j{at}"] for at in range(jobs))
        return len(calls)

    assert calls_for(3) == calls_for(30)


# --- first come, random, one at a time --------------------------------------------------------------------------------


def test_fifo_waits_for_the_head_of_the_queue() -> None:
    runs = [placed(job("r", mode(memory=4.0)))]
    large, small = job("large", mode(memory=6.0), arrived_s=1.0), job("small", mode(memory=0.1), arrived_s=2.0)
    assert started([small, large], runs, policy="fifo") == ()
    reasons = waits([small, large], runs, "fifo")
    why = "needs 6,866.5 MiB of memory, 4,959.1 MiB of 9,536.7 MiB are free"
    assert reasons == {"large": why, "small": "waits behind large"}
    earlier = msgspec.structs.replace(small, arrived_s=0.0)
    assert names(started([large, earlier], runs, policy="fifo")) == ["small"]


def test_fifo_runs_as_many_jobs_as_there_are_cores() -> None:
    assert len(started([job(f"j{at}", mode(1.0, memory=0.1)) for at in range(9)], policy="fifo")) == HOST.cores


def test_fifo_takes_the_fastest_mode_and_the_emptiest_gpu() -> None:
    jobs = [job(f"j{at}", mode(speed=100.0), gpu_mode(speed=400.0, gpu_memory=6.0)) for at in range(3)]
    starts = started(jobs, host=GPU_HOST, policy="fifo")
    assert [start.placement for start in starts] == [Placement(1, 0), Placement(1, 1), Placement(0)]


def test_one_at_a_time() -> None:
    jobs = [job("b", mode(0.1), arrived_s=1.0), job("a", mode(0.1), arrived_s=0.0)]
    assert names(started(jobs, policy="exclusive")) == ["a"]
    assert waits(jobs[:1], [placed(jobs[1])], "exclusive") == {"b": "a runs, and jobs run one at a time"}


def test_random_depends_on_the_seed_and_on_the_number_of_decisions_alone() -> None:
    jobs = [job(f"j{at}", mode(0.1, memory=0.1)) for at in range(20)]

    def drawn(seed: int, decisions: int) -> tuple[str, ...]:
        chosen = ColocationSettings(policy="random", seed=seed)
        return tuple(names(dispatch(jobs, [], HOST, chosen, Corrections(), 0.0, decisions=decisions)))

    assert drawn(1, 0) == drawn(1, 0)
    assert len({drawn(seed, 0) for seed in range(5)} | {drawn(1, 4)}) == 6
    assert all(len(set(drawn(seed, 0))) == HOST.cores for seed in range(5))
    firsts = {drawn(seed, 0)[0] for seed in range(60)}
    assert len(firsts) > 12, "the draws cover the jobs that fit"


def test_random_draws_among_gpus_too() -> None:
    jobs = [job("a", mode(), gpu_mode())]
    devices = {
        dispatch(jobs, [], GPU_HOST, ColocationSettings(policy="random", seed=seed), Corrections(), 0.0)[0].placement
        for seed in range(20)
    }
    assert devices == {Placement(1, 0), Placement(1, 1)}


# --- RMixer -----------------------------------------------------------------------------------------------------------


def test_rmixer_takes_the_highest_utilisation_whose_type_differs() -> None:
    jobs = [
        job("dense low", mode(0.2), kind="dense"),
        job("dense high", mode(0.9), kind="dense"),
        job("input", mode(0.1), kind="input"),
    ]
    starts = started(jobs, policy="rmixer_type", most_jobs=3)
    assert names(starts) == ["dense high", "input", "dense low"]
    assert starts[1].reason.startswith(
        "first job by utilisation that fits: its kind is input, dense jobs dominate the CPU"
    )
    assert names(started(jobs, policy="rmixer_type", rmixer_same_type=False)) == ["dense high", "input"]
    left = waits([jobs[0]], [placed(jobs[1]), placed(jobs[2])], "rmixer_type", rmixer_same_type=False)
    assert left == {"dense low": "its kind dominates every device that it fits"}


def test_rmixer_has_its_own_margin() -> None:
    runs = [placed(job("r", mode(memory=5.0)))]
    assert started([job("a", mode(memory=3.4))], runs, policy="rmixer_type") == ()
    assert names(started([job("a", mode(memory=3.3))], runs, policy="rmixer_type")) == ["a"]
    assert names(started([job("a", mode(memory=3.9))], runs, policy="rmixer_type", rmixer_margin=1.0)) == ["a"]


def test_rmixer_fills_the_emptiest_gpu_and_gives_the_tail_to_the_cpu() -> None:
    def one(name: str, gpu: float) -> JobDemand:
        return job(name, mode(0.1, speed=50.0), gpu_mode(gpu, speed=400.0, gpu_memory=6.0), kind=name)

    jobs = [one("low", 0.2), one("high", 0.9), one("middle", 0.6), one("least", 0.1)]
    starts = started(jobs, host=GPU_HOST, policy="rmixer_type")
    assert [(start.job, start.placement.device) for start in starts] == [
        ("high", 0),
        ("middle", 1),
        ("least", CPU),
        ("low", CPU),
    ]


# --- parts of the default that can be switched off --------------------------------------------------------------------


def crowd() -> list[JobDemand]:
    return [job(f"j{at}", mode(0.8, memory=1.5), arrived_s=float(at)) for at in range(8)]


def test_without_complementarity_jobs_that_fit_start_in_order() -> None:
    large = job("large", mode(memory=8.0), arrived_s=-1.0)
    runs = [placed(job("r", mode(memory=1.0)))]
    starts = started([large, *crowd()], runs, complementarity=False)
    assert names(starts) == ["j0", "j1", "j2", "j3"], "jobs that do not fit are passed"
    assert "earlier jobs that do not fit: 1" in starts[0].reason
    assert len(started(crowd(), runs)) < 4, "with complementarity the cores are full before"


def test_without_memory_admission_the_number_of_jobs_is_limited() -> None:
    def counted(waiting: list[JobDemand], most_jobs: int = 0) -> list[str]:
        return names(started(waiting, complementarity=False, memory_admission=False, most_jobs=most_jobs))

    many = [job(f"j{at}", mode(0.2, memory=9.0)) for at in range(9)]
    assert len(counted(many)) == HOST.cores
    assert len(counted(many, most_jobs=6)) == 6
    assert counted([job("larger than the host", mode(memory=50.0))]) == ["larger than the host"]
    assert len(started(many, memory_admission=False)) == HOST.cores, "the other rules are unchanged"


def test_without_feedback_corrections_are_ignored() -> None:
    harmful = Corrections((PairCorrection("dense", "dense", -1.3),))
    runs, waiting = [placed(job("r", mode(0.1)))], [job("a", mode(0.1))]
    assert dispatch(waiting, runs, HOST, ColocationSettings(), harmful, 0.0) == ()
    assert names(dispatch(waiting, runs, HOST, ColocationSettings(feedback=False), harmful, 0.0)) == ["a"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_batch_ends_under_every_policy(policy: PolicyName) -> None:
    jobs = [
        job(f"j{at}", mode(0.1 + at % 3 * 0.4, memory=1.0 + at % 5), kind=("input", "dense")[at % 2], seconds=10.0 + at)
        for at in range(12)
    ]
    assert len(run(jobs, HOST, ColocationSettings(policy=policy)).ended_s) == 12
