"""The observation of a job, from the status file of its run and from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from elastichost.dispatcher import job_observer as watching
from elastichost.dispatcher.facts import JobSample
from elastichost.dispatcher.isolation.process_meter import HostProcesses, core_waits, read_bytes
from elastichost.dispatcher.job_observer import JobObserver
from elastichost.host.nvml.use import GpuMeter, GpuUse
from elastichost.host.process_meter import anonymous_bytes
from elastichost.metrics import GpuStatus, ProcessStatus, RunStatus
from tests.dispatcher.jobs import MB

HERE = os.getpid()


def status(pid: int = HERE, samples: int = 0, workers: tuple[int, ...] = (HERE,), **facts: object) -> RunStatus:
    """The status of a run whose workers have these pids."""
    processes = tuple(ProcessStatus("worker", at, 1, one, "training") for at, one in enumerate(workers))
    common = RunStatus(run_dir="", job="a", state="training", supervisor_pid=pid, samples_trained=samples)
    return msgspec.structs.replace(common, processes=processes, **facts)


class Written:
    """Writes the status file of a run; each version has a newer modification time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.at_ns = folder, 10**18

    def write(self, one: RunStatus) -> None:
        path = self.folder / "status.json"
        path.write_bytes(msgspec.json.encode(one))
        self.at_ns += 10**9
        os.utime(path, ns=(self.at_ns, self.at_ns))


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_a_look_is_what_changed_between_two_statuses(written: Written) -> None:
    watch, pids, runs = JobObserver(2), {"a": HERE}, {"a": written.folder}
    (first,) = watch.look(pids, runs, 0.0)
    assert (first.status, first.look, first.memory_bytes) == (None, None, 0)
    written.write(status(samples=100, arena_bytes=5 * MB, private_bytes=3 * MB))
    (second,) = watch.look(pids, runs, 1.0)
    assert second.look is None and second.status is not None
    assert second.memory_bytes == 8 * MB
    written.write(status(samples=150))
    (soon,) = watch.look(pids, runs, 2.0)
    assert soon.look is None, "too little time has passed"
    (same,) = watch.look(pids, runs, 3.0)
    assert same.look is None, "nothing new was written"
    written.write(status(samples=400))
    (last,) = watch.look(pids, runs, 4.0)
    assert last.look is not None
    assert (last.look.seconds, last.look.samples, last.look.workers) == (3.0, 300, 1)
    assert last.look.all_cpu_s >= last.look.worker_cpu_s >= 0
    assert HERE in last.pids


def test_a_look_has_what_was_read_waited_and_moved(written: Written, tmp_path: Path) -> None:
    moved = iter((100, 350))
    watch = JobObserver(2, traffic_bytes=lambda job: next(moved))
    waited = {"input_wait_fraction": 0.25, "message_bytes_per_s": 50.0}
    waiting = msgspec.structs.replace(status().processes[0], **waited)
    written.write(status(samples=1))
    watch.look({"a": HERE}, {"a": written.folder}, 0.0)
    (tmp_path / "data").write_bytes(bytes(3 * MB))
    assert len((tmp_path / "data").read_bytes()) == 3 * MB
    written.write(msgspec.structs.replace(status(samples=9), processes=(waiting,)))
    (seen,) = watch.look({"a": HERE}, {"a": written.folder}, 2.0)
    assert seen.look is not None and seen.look.read_bytes is not None
    assert 3 * MB <= seen.look.read_bytes < 6 * MB, "it is counted once; other threads of this process read little"
    assert (seen.look.input_wait_s, seen.look.input_wait_share) == (0.5, 0.25)
    assert (seen.look.traffic_bytes, seen.look.message_bytes) == (250.0, 100.0)


def test_processes_that_have_ended_tell_nothing_of_what_they_read() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert read_bytes((HERE, child)) is None
    assert read_bytes((HERE,)) is not None


def test_a_change_of_workers_or_phase_begins_a_new_look(written: Written) -> None:
    watch, pids, runs = JobObserver(2), {"a": HERE}, {"a": written.folder}

    def looked_at(now_s: float, one: RunStatus) -> bool:
        written.write(one)
        return watch.look(pids, runs, now_s)[0].look is not None

    assert not looked_at(0.0, status(samples=1))
    assert looked_at(2.0, status(samples=2))
    assert not looked_at(4.0, status(samples=3, workers=(1,))), "the CPU time of another incarnation begins at 0"
    assert looked_at(6.0, status(samples=4, workers=(1,)))
    assert not looked_at(8.0, msgspec.structs.replace(status(samples=4), state="evaluating"))
    assert not looked_at(10.0, status(samples=5, workers=(1,)))
    assert not looked_at(12.0, status(samples=5, workers=()))


def test_the_end_of_training_is_no_measurement(written: Written) -> None:
    """The last batches are trained when nothing is read any more."""
    watch, pids, runs = JobObserver(2), {"a": HERE}, {"a": written.folder}
    looks = []
    for turn, trained in enumerate((1, 5, 9)):
        written.write(status(samples=trained, samples_planned=9))
        looks.append(watch.look(pids, runs, 2.0 * turn)[0].look)
    assert [look is not None for look in looks] == [False, True, False]


def test_the_wait_for_a_core_is_that_of_the_thread_that_waited_longest(written: Written) -> None:
    """Three busy processes on the one core that the second of them may use as well."""
    core = min(os.sched_getaffinity(0))
    busy = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", busy]
    hogs = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for hog in hogs:
            assert hog.stdout is not None and hog.stdout.readline()
        watch, pids, runs = JobObserver(2), {"a": HERE}, {"a": written.folder}
        written.write(status(samples=1, workers=(hogs[0].pid,)))
        watch.look(pids, runs, 0.0)
        before = core_waits(hogs[0].pid)
        while sum((core_waits(hogs[0].pid) or {}).values()) < sum((before or {}).values()) + 0.5:
            time.sleep(0.05)
        written.write(status(samples=5, workers=(hogs[0].pid,)))
        (seen,) = watch.look(pids, runs, 2.0)
        assert seen.look is not None and seen.look.core_wait_s is not None
        assert seen.look.core_wait_s >= 0.5 and seen.look.core_wait_share >= 0.25 and seen.look.is_crowded
    finally:
        for hog in hogs:
            hog.kill()
            hog.communicate()
    assert core_waits(hogs[0].pid) is None


def test_without_the_kernels_word_workers_on_busy_cores_are_taken_to_lack_one() -> None:
    free, crowded = (JobSample(2.0, 9, 1.0, 1.0, 1, share) for share in (0.3, 0.95))
    assert (free.core_wait_share, free.is_crowded) == (0.0, False)
    assert crowded.core_wait_share > 0 and crowded.is_crowded
    told = msgspec.structs.replace(crowded, core_wait_s=0.0)
    assert (told.core_wait_share, told.is_crowded) == (0.0, False)


def test_the_status_of_a_dead_supervisor_is_ignored(written: Written) -> None:
    written.write(status(pid=1, samples=500, arena_bytes=900 * MB))
    watch, pids, runs = JobObserver(2), {"a": HERE}, {"a": written.folder}
    for now_s in (0.0, 3.0):
        (seen,) = watch.look(pids, runs, now_s)
        assert (seen.status, seen.memory_bytes, seen.look) == (None, 0, None)
    written.write(status(samples=501, arena_bytes=7 * MB))
    assert watch.look(pids, runs, 4.0)[0].memory_bytes == 7 * MB


def test_a_half_written_status_is_ignored(written: Written) -> None:
    watch, pids, runs = JobObserver(2), {"a": HERE}, {"a": written.folder}
    written.write(status(samples=7))
    watch.look(pids, runs, 0.0)
    (written.folder / "status.json").write_bytes(b'{"run_dir"')
    (seen,) = watch.look(pids, runs, 1.0)
    assert seen.status is not None and seen.status.samples_trained == 7


def test_a_job_whose_process_has_ended_is_not_observed(written: Written) -> None:
    watch = JobObserver(2)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert watch.look({"a": child}, {"a": written.folder}, 0.0) == ()
    assert HostProcesses().tree(child) is None


def test_a_process_tree_has_all_descendants_whatever_their_names(tmp_path: Path) -> None:
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        Path("/proc/self/comm").write_text("a) b (c 1 2 3")
        grandchild = os.fork()
        os.write(ready[1], f"{os.getpid()} ".encode())
        os.read(go[0], 1)
        if grandchild:
            os.waitpid(grandchild, 0)
        os._exit(0)
    said = b""
    while said.count(b" ") < 2:
        said += os.read(ready[0], 64)
    tree = HostProcesses().tree(child)
    os.write(go[1], b"gg")
    os.waitpid(child, 0)
    for descriptor in (*ready, *go):
        os.close(descriptor)
    assert tree is not None
    assert set(tree.pids) == {int(pid) for pid in said.split()}
    assert tree.pids[0] == child
    assert tree.cpu_s >= 0


# --- memory that was taken since it was measured ----------------------------------------------------------------------


def test_memory_that_a_process_takes_is_counted_at_once_and_only_once(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """anonymous_mb: of the status. taken: what the kernel counts now."""
    taken = {HERE: 100 * MB}
    monkeypatch.setattr(watching, "anonymous_bytes", lambda pid: taken.get(pid, 0))
    watch = JobObserver(2)

    def grown_mb(now_s: float, anonymous_mb: int | None = None) -> int:
        if anonymous_mb is not None:
            one = ProcessStatus("worker", 0, 1, HERE, "training", anonymous_bytes=anonymous_mb * MB)
            written.write(msgspec.structs.replace(status(), processes=(one,)))
        return watch.look({"a": HERE}, {"a": written.folder}, now_s)[0].grown_bytes // MB

    assert grown_mb(0.0, anonymous_mb=0) == 0, "nothing is measured yet; memory that it was forked with is not its own"
    taken[HERE] = 130 * MB
    assert grown_mb(0.2) == 0
    assert grown_mb(1.0, anonymous_mb=110) == 20
    taken[HERE] = 900 * MB
    assert grown_mb(1.2) == 790
    assert grown_mb(9.0) == 790, "as long as there is no new status"
    assert grown_mb(10.0, anonymous_mb=900) == 0, "the new status contains the growth"
    taken[HERE] = 50 * MB
    assert grown_mb(10.2) == -850, "what comes and goes with each batch is not counted twice"
    taken[HERE] = 0
    assert grown_mb(10.4) == 0, "it has ended"


def test_anonymous_bytes_grow_with_what_a_process_allocates() -> None:
    before = anonymous_bytes(HERE)
    taken = np.ones(50 * MB, dtype=np.uint8)
    assert anonymous_bytes(HERE) - before == pytest.approx(len(taken), rel=0.1)
    assert anonymous_bytes(2**22 + 1) == 0, "the process has ended"


# --- GPUs -------------------------------------------------------------------------------------------------------------


class Gpus(GpuMeter):
    """Returns prepared measurements of one GPU, one at each look."""

    def __init__(self, *said: GpuUse) -> None:
        super().__init__(())
        self.said = list(said)

    def look(self, now_s: float) -> tuple[GpuUse, ...]:
        return (self.said.pop(0),)


def test_a_look_has_the_gpu_seconds_of_the_job_s_processes(written: Written) -> None:
    use = GpuUse(0, 1.5, 0.3, {HERE: (0.5, 0.1), 1: (1.0, 0.2)}, {HERE: 700, 1: 900})
    watch, pids, runs = JobObserver(2, Gpus(use, use, use)), {"a": HERE}, {"a": written.folder}
    written.write(status(samples=100))
    watch.look(pids, runs, 0.0)
    watch.look(pids, runs, 2.0)
    written.write(status(samples=400))
    (seen,) = watch.look(pids, runs, 4.0)
    assert seen.look is not None and seen.look.gpu_s is not None
    assert (seen.look.gpu_s, seen.look.gpu_memory_s, seen.look.gpu_share) == pytest.approx((1.0, 0.2, 0.75))
    assert seen.gpu_memory_bytes == 700


@pytest.mark.parametrize(
    ("others", "sent", "expected"),
    [({}, 3e9, 2.0 * 5e9), ({}, 7e9, 2.0 * 7e9), ({1: 900}, 3e9, None), ({}, None, None)],
)
def test_traffic_over_the_bus_is_of_the_job_if_it_is_alone_on_its_gpu(
    written: Written, others: dict[int, int], sent: float | None, expected: float | None
) -> None:
    use = GpuUse(0, 1.0, 0.2, {HERE: (0.5, 0.1)}, {HERE: 700, **others})
    watch, pids, runs = JobObserver(2, Gpus(use, use)), {"a": HERE}, {"a": written.folder}
    gpu = GpuStatus(index=0, name="a", total_bytes=1000, received_bytes_per_s=5e9, sent_bytes_per_s=sent)
    written.write(status(samples=100))
    watch.look(pids, runs, 0.0)
    written.write(status(samples=400, gpus=(gpu,)))
    (seen,) = watch.look(pids, runs, 2.0)
    assert seen.look is not None
    assert seen.look.link_bytes == (None if expected is None else pytest.approx(expected))


def test_gpu_time_of_no_process_is_divided_among_the_jobs_on_the_gpu(written: Written) -> None:
    use = GpuUse(0, 1.0, 0.2, {}, {HERE: 700})
    watch = JobObserver(2, Gpus(use, use))
    pids, runs = {"a": HERE, "b": HERE}, {"a": written.folder, "b": written.folder}
    written.write(status(samples=100))
    watch.look(pids, runs, 0.0)
    written.write(status(samples=400))
    for seen in watch.look(pids, runs, 2.0):
        assert seen.look is not None
        assert (seen.look.gpu_s, seen.look.gpu_share) == pytest.approx((0.5, 0.5))


def test_a_job_without_gpu_memory_is_on_no_gpu(written: Written) -> None:
    use = GpuUse(0, 1.0, 0.2, {1: (1.0, 0.2)}, {1: 900})
    watch, pids, runs = JobObserver(2, Gpus(use, use)), {"a": HERE}, {"a": written.folder}
    written.write(status(samples=100))
    watch.look(pids, runs, 0.0)
    written.write(status(samples=400))
    (seen,) = watch.look(pids, runs, 2.0)
    assert seen.look is not None
    assert (seen.look.gpu_s, seen.look.gpu_share, seen.gpu_memory_bytes) == (None, 0.0, 0)
