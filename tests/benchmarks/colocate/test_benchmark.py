"""The co-location benchmark: its job files are valid, and its figures follow from the records."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from benchmarks.colocate import benchmark as suite
from benchmarks.colocate.arms import (
    ARMS,
    OURS,
    RMIXER,
    SHIPPED,
    TUNED,
    UNTRACKED,
    arms_of,
    estimated_s,
    policy_options,
    turns,
)
from benchmarks.colocate.figures import bound_of, figures_of, headline, least_work, verdicts_of
from benchmarks.colocate.jobs import (
    FULL,
    KINDS,
    MIXES,
    QUICK,
    SHAPES,
    Job,
    Shape,
    job_of,
    jobs_of,
    rate_bytes_per_s,
    write_job,
)
from benchmarks.colocate.pictures import save_pictures
from benchmarks.colocate.quality import memory_error, parity
from benchmarks.colocate.recorded import ArmRun, Campaign, Cold, JobEnd, JobRun, Sweep, Use, arm_run
from benchmarks.colocate.result_store import Keep
from benchmarks.harness.machine import read_machine
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.datasets.remote import batch_bytes
from elastichost.dispatcher.facts import HostStatus, JobStatus
from elastichost.dispatcher.timeline import Moment
from elastichost.runs.events import AnyEvent, HostPrepared, JobSubmitted, JournalLine
from elastichost.tuner.colocation.settings import ColocationSettings

CORES, GB = 2, 1 << 30


def job_run(job: str, begins_s: float, ends_s: float, **changes: object) -> JobRun:
    """The record of a job that used one of two cores."""
    found = JobRun(
        job=job,
        shape=job.rpartition("-")[0],
        kind=job.partition("-")[0],
        state="done",
        why="done",
        started_s=begins_s,
        ended_s=ends_s,
        starts=1,
        workers=1,
        samples=1_000,
        cpu_s=ends_s - begins_s,
        peak_bytes=GB,
        estimated_bytes=GB,
        out_of_memory=0,
        auc=0.7,
        truth_auc=0.8,
    )
    return msgspec.structs.replace(found, **changes)


def arm(name: str, *jobs: JobRun, mix: str = "balanced", number: int = 0, failure: str = "") -> ArmRun:
    """The record of a run of one arm with these jobs."""
    makespan_s = max((job.ended_s for job in jobs), default=0.0)
    return ArmRun(
        mix=mix,
        arm=name,
        round=number,
        cores=CORES,
        memory_bytes=16 * GB,
        makespan_s=makespan_s,
        failure=failure,
        jobs=jobs,
        uses=tuple(Use(at_s, job.job, 1.0, GB) for job in jobs for at_s in (job.started_s, job.ended_s)),
    )


def sequential(name: str = SHIPPED, number: int = 0, slower: float = 1.0, mix: str = "balanced") -> ArmRun:
    """A sequential run of four jobs of 10 s with one core each: 40 s, or 20 s of both cores."""
    jobs = ("input-a-1", "embedding-a-1", "dense-a-1", "dense-a-2")
    runs = (job_run(job, 10.0 * slower * i, 10.0 * slower * (i + 1)) for i, job in enumerate(jobs))
    return arm(name, *runs, mix=mix, number=number)


def together(
    name: str = OURS, number: int = 0, seconds: float = 25.0, mix: str = "balanced", **changes: object
) -> ArmRun:
    """A run in which the jobs of `sequential` share the host and take `seconds` each."""
    runs = (msgspec.structs.replace(job, started_s=0.0, ended_s=seconds, **changes) for job in sequential().jobs)
    return arm(name, *runs, mix=mix, number=number)


# --- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("workers", [None, 3])
def test_every_shape_is_a_job_as_shipped_and_in_a_static_plan(
    tmp_path: Path, shape: Shape, workers: int | None
) -> None:
    job = job_of(shape, 2, FULL)
    spec = load_job(write_job(tmp_path, job, workers), environ={})
    assert (spec.job.name, spec.job.seed) == (f"{job.shape.name}-2", 2)
    assert spec.data.synthetic.rows == job.samples >= 2 * spec.train.batch_size
    assert (spec.data.remote.rate_bytes_per_s > 0) == (job.shape.kind == "input")
    of_file = "auto" if workers is None else workers
    assert spec.resources.workers == (1 if job.shape.kind in ("input", "disk") else of_file)
    assert spec.tuner.mode == ("act" if workers is None else "off")


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.kind == "input"], ids=lambda shape: shape.name)
def test_the_byte_rate_gives_the_stated_samples(tmp_path: Path, shape: Shape) -> None:
    job = job_of(shape, 1, QUICK)
    reader = open_reader(load_job(write_job(tmp_path, job), environ={}), "train")
    batch = next(iter(reader.batches(reader.describe().units[0], 0, 100, 100)))
    sample_bytes = batch_bytes(batch) / batch.size
    assert rate_bytes_per_s(job.shape) / sample_bytes == pytest.approx(job.shape.samples_per_s, rel=1e-6)


def test_a_mix_has_equally_many_jobs_of_each_kind_and_shape_in_a_fixed_order() -> None:
    assert set(MIXES) == {"input_bound", "embedding_bound", "dense_bound", "balanced", "disk_bound"}
    for mix, kinds in MIXES.items():
        jobs = jobs_of(mix, 24, FULL)
        assert jobs == jobs_of(mix, 24, FULL) and len({job.name for job in jobs}) == 24
        for kind in KINDS:
            shapes = [job.shape.name for job in jobs if job.shape.kind == kind]
            assert len(shapes) == (24 // len(kinds) if kind in kinds else 0)
            assert not shapes or {shapes.count(name) for name in shapes} == {24 // len(kinds) // 3}
    # neither sorted by kind nor alternating between kinds
    kinds_of = [job.shape.kind for job in jobs_of("balanced", 24, FULL)]
    assert 0 < sum(one == next_one for one, next_one in pairwise(kinds_of)) < 20
    assert len(jobs_of("balanced", 3, QUICK)) == 3
    with pytest.raises(ValueError, match="at least 1 job"):
        jobs_of("balanced", 0, QUICK)


# --- arms -------------------------------------------------------------------------------------------------------------


def test_every_arm_has_valid_policy_settings() -> None:
    for one in ARMS.values():
        options = policy_options(one, CORES)
        facts = dict(option.split("=") for option in options[3::2])
        settings = msgspec.convert({"policy": options[1], **facts}, type=ColocationSettings, strict=False)
        assert settings.policy == one.policy
    assert "most_jobs=2" in policy_options(ARMS["concurrency"], 2)


def test_rounds_are_interleaved_and_begin_with_another_arm_each() -> None:
    found = list(turns(("balanced",), (), 3, quick=False))
    by_round = [[turn.arm.name for turn in found if turn.round == number] for number in range(3)]
    assert all(sorted(names) == sorted(ARMS.keys() - {UNTRACKED}) for names in by_round)
    assert len({names[0] for names in by_round}) == 3
    assert [one.name for one in arms_of("dense_bound", (), quick=True)] == [SHIPPED, RMIXER, OURS]
    assert [one.name for one in arms_of("disk_bound", (), quick=False)] == [SHIPPED, RMIXER, UNTRACKED, OURS]
    assert [one.name for one in arms_of("dense_bound", ("fifo", OURS, "fifo"), quick=True)] == ["fifo", OURS]


def test_arms_that_share_the_host_are_expected_to_take_no_longer() -> None:
    jobs = jobs_of("input_bound", 24, FULL)
    took_s = {name: estimated_s(one, jobs, FULL.alone_s, CORES) for name, one in ARMS.items()}
    assert took_s[OURS] < took_s["fifo"] < took_s[SHIPPED] == took_s[TUNED]


# --- recording --------------------------------------------------------------------------------------------------------


def line(event: AnyEvent, at_s: float) -> JournalLine:
    return JournalLine("", at_s, event)


def test_times_are_from_the_moment_the_host_is_ready() -> None:
    jobs = [Job(f"dense-a-{number}", SHAPES[6], number, 500) for number in (1, 2)]
    statuses = [
        JobStatus(job="dense-a-1", state="done", run_dir="", submitted_s=1.0, started_s=21.0, ended_s=31.0, cpu_s=12.5),
        JobStatus(job="dense-a-2", state="failed", run_dir="", why="burnt", submitted_s=1.5, samples_trained=7),
    ]
    host = HostStatus(
        directory="", pid=1, commands="", policy="fifo", cores=2, memory_bytes=GB, elapsed_s=40.0, jobs=tuple(statuses)
    )
    submitted = [line(JobSubmitted("dense-a-1"), 101.0), line(JobSubmitted("dense-a-2"), 101.5)]
    lines = [*submitted, line(HostPrepared(19.0), 120.0)]
    moments = [Moment(elapsed_s, "dense-a-1", "running", 2.0, GB, GB, 100.0, 1.0, 2) for elapsed_s in (22.0, 30.0)]
    ends = {"dense-a-1": JobEnd(500, 0.75, 0.8)}
    found = arm_run(arm("fifo"), jobs, host, lines, moments, ends)
    assert found.ready_s == 20.0 and found.makespan_s == 20.0
    first, second = found.jobs
    assert (first.started_s, first.ended_s, first.wall_s, first.workers, first.cpu_s) == (1.0, 11.0, 10.0, 2, 12.5)
    assert (first.samples, first.auc, second.samples, second.auc) == (500, 0.75, 7, None)
    assert found.failure == "1 of 2 jobs are not done; dense-a-2: burnt"
    assert [use.at_s for use in found.uses] == [2.0, 10.0]
    with pytest.raises(ValueError, match="never ready"):
        arm_run(arm("fifo"), jobs, host, submitted, moments, ends)


def test_kept_runs_are_not_repeated_unless_they_failed(tmp_path: Path) -> None:
    keep = Keep(tmp_path / "kept")
    assert keep.campaign() is None and not keep.sweeps() and not keep.runs()
    campaign = Campaign("full", 24, read_machine())
    keep.begin(campaign)
    keep.begin(campaign)
    with pytest.raises(ValueError, match="24 jobs"):
        keep.begin(Campaign("full", 12, read_machine()))
    with pytest.raises(ValueError, match="another folder"):
        keep.begin(Campaign("full", 24, read_machine(), "an accelerator"))
    keep.add(sequential())
    keep.add(arm(OURS, failure="it broke"))
    assert keep.run("balanced", SHIPPED, 0) == sequential()
    assert keep.run("balanced", OURS, 0) is None and keep.run("balanced", SHIPPED, 1) is None
    assert {run.arm: run.failure for run in keep.runs()} == {SHIPPED: "", OURS: "it broke"}
    keep.add_sweeps([Sweep("dense-a", {1: 9.0, 2: 8.0})])
    keep.add_sweeps([Sweep("dense-b", {1: 7.0, 2: 8.0})])
    assert {name: one.best for name, one in keep.sweeps().items()} == {"dense-a": 2, "dense-b": 1}
    keep.add_cold(Cold("dense", "dense-a-1", 20.0))
    assert keep.colds()["dense"].seconds == 20.0
    (tmp_path / "kept" / "arms" / "balanced.ours.0.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        keep.runs()


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_bound_is_that_of_the_scarcest_resource() -> None:
    assert bound_of(sequential(), {}).speedup == pytest.approx(2.0)
    assert bound_of(sequential(), {}).binding.name == "cores"
    idle = arm(SHIPPED, job_run("input-a-1", 0, 10, cpu_s=0.5), job_run("input-a-2", 10, 40, cpu_s=0.5))
    assert bound_of(idle, {}).speedup == pytest.approx(40 / 30)
    assert bound_of(idle, {}).binding.job == "input-a-2"
    # with a plan that needs half the cores, twice as many jobs fit; an additional plan cannot lower the bound
    frugal = arm(TUNED, *(msgspec.structs.replace(job, cpu_s=5.0) for job in sequential().jobs))
    assert bound_of(sequential(), {}, frugal).speedup == pytest.approx(4.0)
    greedy = arm(TUNED, *(msgspec.structs.replace(job, cpu_s=20.0) for job in sequential().jobs))
    assert bound_of(sequential(), {}, greedy).speedup == pytest.approx(2.0)
    # a lower CPU time beside other jobs lowers the work
    least = least_work([sequential(), frugal, greedy])
    assert set(least.values()) == {5.0}
    assert bound_of(sequential(), least).speedup == pytest.approx(4.0)
    crowded = arm(SHIPPED, *(msgspec.structs.replace(job, peak_bytes=12 * GB) for job in sequential().jobs))
    assert bound_of(crowded, {}).binding.name == "memory"


def test_ratios_compare_runs_of_the_same_round() -> None:
    """The machine is twice as slow in the second round, and the third round has no run of ours."""
    runs = [sequential(), sequential(number=1, slower=2.0), sequential(number=2, slower=9.0)]
    runs += [together(), together(number=1, seconds=50.0, cpu_s=20.0), together(RMIXER, seconds=30.0)]
    found = figures_of(runs, {}, {}).mixes["balanced"]
    ours = found.arms[OURS]
    assert ours.speedup is not None and (ours.speedup.least, ours.speedup.most) == (1.6, 1.6)
    over = found.arms[SHIPPED].ours_over
    assert over is not None and (over.median, over.most) == (1.6, 1.6)
    assert found.arms[SHIPPED].rounds == 3 and ours.rounds == 2
    assert found.bound is not None and found.bound.median == pytest.approx(2.0)
    assert found.ours_over_bound is not None and found.ours_over_bound.median == pytest.approx(0.8)
    rmixer = found.arms[RMIXER].ours_over
    assert rmixer is not None and rmixer.median == pytest.approx(1.2)
    # each of its jobs took 25 s instead of 10 s
    assert ours.worst_slowdown is not None and ours.worst_slowdown.most == pytest.approx(2.5)
    assert found.arms[SHIPPED].turnaround_s.least == pytest.approx(25.0)
    assert found.arms[SHIPPED].samples_per_s.most == pytest.approx(100.0)
    assert found.arms[SHIPPED].busy.median == pytest.approx(0.5)


def test_parts_of_the_gain_multiply_to_the_whole_gain() -> None:
    steps = {"concurrency": 32.0, "memory": 30.0, "complementarity": 27.0, OURS: 25.0}
    runs = [sequential(), *(together(name, seconds=seconds) for name, seconds in steps.items())]
    parts = figures_of(runs, {}, {}).mixes["balanced"].parts
    assert list(parts) == list(steps)
    product = 1.0
    for part in parts.values():
        product *= part.median
    assert product == pytest.approx(40.0 / 25.0)


def test_a_failed_arm_is_reported_and_not_counted() -> None:
    runs = [sequential(), arm(OURS, failure="it broke")]
    found = figures_of(runs, {}, {})
    mix = found.mixes["balanced"]
    assert OURS not in mix.arms and mix.failures == {f"{OURS}, round 1": "it broke"}
    line = msgspec.to_builtins(headline(found))
    assert line["mix"]["balanced"]["ours_over_sequential"] is None
    assert line["mix"]["balanced"]["failures"] == mix.failures


def test_estimates_of_memory_are_compared_with_peaks() -> None:
    jobs = [
        job_run(f"dense-a-{n}", 0, 1, estimated_bytes=size) for n, size in enumerate((GB * 12 // 10, GB, GB * 3 // 4))
    ]
    found = memory_error([arm(OURS, *jobs, job_run("dense-a-9", 0, 1, peak_bytes=0))])
    assert found.p50 == pytest.approx(0.2, abs=1e-6)
    assert found.max_under == pytest.approx(0.25) and found.max_over == pytest.approx(0.2, abs=1e-6)
    assert (found.jobs, found.unseen) == (3, 1)
    assert memory_error([]).p50 is None
    # sequential jobs do not count, because their tuners choose the size and not the dispatcher
    lying = arm(SHIPPED, *(msgspec.structs.replace(job, estimated_bytes=1) for job in sequential().jobs))
    assert figures_of([lying, together()], {}, {}).memory.max_under == 0.0


def test_auc_is_compared_job_by_job_and_with_the_spread_over_seeds() -> None:
    aucs = {"dense-a-1": 0.70, "dense-a-2": 0.71, "dense-b-1": 0.60}
    before = arm(SHIPPED, *(job_run(job, 0, 1, auc=auc) for job, auc in aucs.items()))
    after = arm(OURS, *(job_run(job, 0, 1, auc=auc - 0.002) for job, auc in aucs.items()), job_run("input-a-1", 0, 1))
    found = parity([(after, before)])
    assert found is not None and found.jobs == 3
    assert found.largest == pytest.approx(-0.002) and found.mean == pytest.approx(-0.002)
    assert found.spread_over_seeds == pytest.approx(0.01 / 2**0.5) and found.is_noise is True
    worse = parity([(arm(OURS, *(job_run(job, 0, 1, auc=auc - 0.05) for job, auc in aucs.items())), before)])
    assert worse is not None and worse.is_noise is False
    assert parity([(arm(OURS), before)]) is None


def test_tracking_of_the_input_and_every_undisturbed_round_over_rmixer_are_judged() -> None:
    runs = [sequential(mix="disk_bound"), together(mix="disk_bound"), together(mix="disk_bound", number=1)]
    runs += [together(UNTRACKED, seconds=31.0, mix="disk_bound"), together(RMIXER, seconds=40.0, mix="disk_bound")]
    runs += [together(RMIXER, number=1, seconds=24.0, mix="disk_bound")]
    found = figures_of(runs, {}, {})
    verdicts = {verdict.aim.figure: verdict for verdict in verdicts_of(found)}
    untracked = verdicts["disk_bound: ours over untracked, undisturbed rounds"]
    assert untracked.value == pytest.approx(1.24) and untracked.is_met
    name = f"disk_bound: ours over {RMIXER} in every undisturbed round"
    assert verdicts[name].value == pytest.approx(0.96) and verdicts[name].is_met is False
    crowded = [msgspec.structs.replace(run, foreign_share=0.5 * run.round) for run in runs]
    verdicts = {verdict.aim.figure: verdict for verdict in verdicts_of(figures_of(crowded, {}, {}))}
    assert verdicts[name].value == pytest.approx(1.6), "beside other processes the arms are not comparable"
    line = msgspec.to_builtins(headline(found))
    assert line["mix"]["disk_bound"]["ours_over_untracked"] == pytest.approx(1.24)


def recorded() -> list[ArmRun]:
    """Records of two mixes; in one of them, a job of ours runs out of memory once."""
    both = []
    for mix in ("input_bound", "dense_bound"):
        both += [sequential(mix=mix), sequential(TUNED, slower=0.65, mix=mix), together(mix=mix)]
        both += [together(RMIXER, seconds=30.0, mix=mix)]
    both[-2] = together(mix="dense_bound", out_of_memory=1)
    return both


def test_the_headline_has_all_figures() -> None:
    found = figures_of(recorded(), {"dense-a": Sweep("dense-a", {1: 3.0, 2: 2.0})}, {})
    line = headline(found)
    assert (
        line["oom"] == 4 and line["memory_error"] == {"p50": 0.0, "max_under": 0.0} and line["plans"] == {"dense-a": 2}
    )
    mixes = msgspec.to_builtins(line)["mix"]
    assert mixes["input_bound"]["ours_over_sequential"] == pytest.approx(1.6)
    assert mixes["input_bound"]["ours_over_rmixer_type"] == pytest.approx(1.2)
    assert mixes["input_bound"]["ours_over_bound"] == pytest.approx(0.8 * 0.65), "the tuned plan needs less work"
    aims = {verdict.aim.figure: verdict.is_met for verdict in verdicts_of(found)}
    assert aims["dense_bound: ours over sequential tuned"] is True
    assert aims["input_bound: of the bound"] is False and aims["jobs of ours that ran out of memory"] is False
    assert not any(what.startswith("balanced") for what in aims)


def test_kept_results_are_reported_with_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = Keep(tmp_path)
    keep.begin(Campaign("full", 4, read_machine()))
    for run in recorded():
        keep.add(run)
    keep.add(arm("fifo", mix="dense_bound", failure="the batch ended with 1: no room"))
    assert suite.main(["--report-from", str(tmp_path), "--json"]) == 1
    said = capsys.readouterr().out.rstrip().splitlines()
    assert msgspec.json.decode(said[-1])["mix"]["dense_bound"]["ours_over_sequential_tuned"] == pytest.approx(26 / 25)
    assert "FAILED fifo, round 1: the batch ended with 1: no room" in said
    pictures = [tmp_path / "colocate.png", tmp_path / "colocate_jobs.png"]
    assert all(path.stat().st_size > 5_000 for path in pictures)
    assert save_pictures(figures_of([], {}, {}), [], tmp_path) == []


def test_the_duration_of_what_is_left_is_told_and_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept runs are not counted again, and tell how long their arm takes."""
    command = ["--plan", "--jobs", "4", "--rounds", "2", "--mix", "balanced", "--arm", SHIPPED, "--arm", OURS]
    assert suite.main(command) == 0
    assert "balanced: 4 runs in 2 rounds" in capsys.readouterr().err
    keep = Keep(tmp_path)
    keep.begin(Campaign("full", 4, read_machine()))
    for number in (0, 1):
        keep.add(msgspec.structs.replace(sequential(number=number), wall_s=50.0, commit="abc"))
    keep.add(msgspec.structs.replace(together(), wall_s=600.0, commit="abc+"))
    assert suite.main([*command, "--keep", str(tmp_path)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["balanced: 1 runs in 1 rounds, about 10 min: ours", "total: about 10 min"]
    assert suite.main(["--report-from", str(tmp_path)]) == 0
    assert "Commits (+: with changed files): 1 runs of abc+, 2 runs of abc" in capsys.readouterr().out


def test_no_run_begins_that_would_end_too_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = Keep(tmp_path)
    keep.begin(Campaign("full", 4, read_machine()))
    for kind in ("input", "embedding", "dense", "balanced"):
        keep.add_cold(Cold(kind, f"{kind}-a-1", 20.0))
    keep.add(msgspec.structs.replace(together(), wall_s=600.0))
    command = ["--jobs", "4", "--rounds", "2", "--mix", "balanced", "--arm", OURS, "--keep", str(tmp_path)]
    assert suite.main([*command, "--minutes", "5"]) == 0
    assert "stops: the next run takes about 10 min; 1 of 1 runs are left" in capsys.readouterr().err
    assert len(keep.runs()) == 1
    assert suite.main(["--minutes", "5"]) == 2
    assert "--minutes needs --keep" in capsys.readouterr().err


def test_invalid_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["--report-from", str(tmp_path / "nothing")]) == 2
    assert suite.main(["--jobs", "1", "--keep", str(tmp_path)]) == 2
    assert "holds no results" in capsys.readouterr().err and not list(tmp_path.iterdir())
