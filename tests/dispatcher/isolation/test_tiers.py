"""Isolation on a host that has all its tiers, on one that has some, and on one that has none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elastichost.dispatcher.isolation.delegation import Delegation, delegated
from elastichost.dispatcher.isolation.tiers import ALWAYS, Isolation, JobLimits, JobUsage, enter, probe
from tests.clock import ManualClock
from tests.dispatcher.fake_kernel import FakeKernel

ME, SERVER, STRANGER = 100, 101, 999
MIB = 1 << 20
LIMITS = JobLimits(memory_bytes=100 * MIB, threads=2, cores=(0, 1))


class Host:
    """A host with a delegated cgroup, unless a test changes its files or `kernel`."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path, self.clock = tmp_path, ManualClock()
        self.proc, self.resctrl, self.systemd = tmp_path / "proc", tmp_path / "resctrl", tmp_path / "systemd"
        self.proc.mkdir()
        self.kernel = FakeKernel(tmp_path / "cgroup")
        self.base = self.kernel.begin("user.slice/host.scope", "cpuset cpu io memory pids", ME, SERVER)
        (self.proc / "mountinfo").write_text(f"41 31 0:38 / {self.kernel.top} rw - cgroup2 cgroup2 rw\n")
        (self.proc / "cgroup").write_text("4:memory:/old\n0::/user.slice/host.scope\n")
        self.family = frozenset({ME, SERVER})

    def standing(self, uid: int = 1000) -> Delegation:
        return Delegation(self.proc, uid, lambda: self.family, self.systemd)

    def probe(self, uid: int = 1000) -> Isolation:
        return probe(self.kernel, self.standing(uid), self.resctrl, self.clock)

    def groups(self) -> set[str]:
        return {path.name for path in self.base.iterdir() if path.is_dir()}

    def group(self, start: str) -> Path:
        return next(path for path in self.base.iterdir() if path.name.startswith(start))

    def content(self) -> dict[str, str]:
        """Returns the content of all files in and below the delegated group."""
        files = (path for path in self.base.rglob("*") if path.is_file())
        return {str(path.relative_to(self.base)): path.read_text() for path in files}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


# --- cgroups ----------------------------------------------------------------------------------------------------------


def test_a_job_has_its_limits_before_it_starts_and_its_group_is_removed_after_it(host: Host) -> None:
    isolation = host.probe()
    assert host.kernel.groups[host.base] == set()
    assert host.kernel.groups[host.group("elastichost-host")] == {ME, SERVER}
    assert isolation.admit("ads/1", None, LIMITS) == ()
    group = host.group("elastichost-1")
    assert group.name == "elastichost-1-ads_1"
    assert (group / "memory.max").read_text() == str(125 * MIB)
    assert (group / "cpu.weight").read_text() == "200"
    assert (group / "cpuset.cpus").read_text() == "0-1"
    assert (group / "memory.oom.group").read_text() == "0"

    assert enter(isolation.doors("ads/1"), host.kernel) == ()
    assert host.kernel.groups[group] == {ME}
    host.kernel.end(ME)
    isolation.release("ads/1")
    assert host.groups() == {"elastichost-host"}
    assert isolation.doors("ads/1") == ()
    assert isolation.usage("ads/1") is None


def test_close_restores_the_files_that_were_found(host: Host) -> None:
    before = host.content()
    isolation = host.probe()
    isolation.admit("a", SERVER, LIMITS)
    assert host.kernel.groups[host.group("elastichost-1")] == {SERVER}
    host.kernel.end(SERVER)
    isolation.close()
    assert host.kernel.groups[host.base] == {ME}
    assert host.content() == {**before, "cgroup.procs": f"{ME}\n"}


def test_usage_is_what_the_kernel_counts(host: Host) -> None:
    isolation = host.probe()
    isolation.admit("a", SERVER, LIMITS)
    group = host.group("elastichost-1")
    (group / "memory.stat").write_text("anon 10\nfile 500\nshmem 5\nkernel 1\n")
    (group / "memory.events").write_text("low 0\nhigh 4\nmax 9\noom 2\noom_kill 3\noom_group_kill 0\n")
    (group / "memory.peak").write_text("700\n")
    assert isolation.usage("a") == JobUsage(16, 700, oom_kills=3, slowed=4)
    (group / "memory.peak").unlink()
    assert isolation.usage("a") == JobUsage(16, None, oom_kills=3, slowed=4)


def test_a_change_of_limits_kills_no_process(host: Host) -> None:
    isolation = host.probe()
    isolation.admit("a", SERVER, LIMITS)
    group = host.group("elastichost-1")
    (group / "memory.stat").write_text(f"anon {90 * MIB}\n")
    assert isolation.change("a", JobLimits(memory_bytes=40 * MIB, threads=1, nice=5, cores=(2,))) == ()
    assert 90 * MIB < int((group / "memory.max").read_text()) < 96 * MIB
    assert (group / "cpuset.cpus").read_text() == "2"
    assert (group / "cpu.weight").read_text() == "33"
    assert isolation.change("nobody", LIMITS) == ()


def test_processes_that_a_dead_supervisor_left_may_live_for_a_while(host: Host) -> None:
    isolation = host.probe()
    isolation.admit("a", SERVER, LIMITS)
    isolation.release("a")
    host.clock.advance(9.0)
    isolation.release("nobody")
    assert host.kernel.killed == set()
    assert "elastichost-1-a" in host.groups()
    host.clock.advance(2.0)
    isolation.release("nobody")
    assert host.kernel.killed == {SERVER}
    isolation.admit("b", None, LIMITS)
    assert host.groups() == {"elastichost-host", "elastichost-2-b"}


def test_a_job_that_starts_again_has_a_new_group(host: Host) -> None:
    isolation = host.probe()
    for _ in range(2):
        isolation.admit("a", None, LIMITS)
    assert host.groups() == {"elastichost-host", "elastichost-2-a"}


def test_a_group_that_cannot_be_made_or_entered_is_a_warning(host: Host) -> None:
    isolation = host.probe()
    (host.base / "elastichost-1-a").mkdir()
    assert isolation.admit("a", None, LIMITS) == (
        "a runs without a cgroup, because none could be created: File exists",
    )
    assert isolation.doors("a") == ()
    assert isolation.admit("b", STRANGER, LIMITS) == ()  # it has ended already
    (problem,) = enter(("/nowhere/cgroup.procs",))
    assert problem.startswith("/nowhere/cgroup.procs: this process could not enter the group: No such file")


def test_controllers_that_cannot_be_enabled_are_left_out(host: Host) -> None:
    host.kernel.unwilling = frozenset({"cpu"})
    isolation = host.probe()
    assert isolation.admit("a", None, LIMITS) == ()
    assert not (host.group("elastichost-1") / "cpu.weight").exists()
    assert (host.group("elastichost-1") / "memory.max").read_text() == str(125 * MIB)
    assert "Controllers that are not available: cpu." in isolation.sentences[1]


def test_all_is_undone_when_no_controller_can_be_enabled(host: Host) -> None:
    before = host.content()
    host.kernel.unwilling = frozenset({"cpu", "memory", "cpuset"})
    isolation = host.probe()
    assert "cannot be divided: No such file" in isolation.sentences[1]
    assert host.content() == before
    assert isolation.admit("a", None, LIMITS) == ()
    assert host.content() == before


def test_the_group_of_another_dispatcher_is_left_alone(host: Host) -> None:
    other = host.base / "elastichost-host"
    host.kernel.make(other)
    host.kernel.groups[other] = {STRANGER}
    host.kernel.make(host.base / "elastichost-7-gone")
    isolation = host.probe()
    assert "cannot be divided: File exists" in isolation.sentences[1]
    isolation.close()
    assert host.kernel.groups[other] == {STRANGER}
    assert host.kernel.killed == set()
    assert host.groups() == {"elastichost-host"}  # the empty group was removed


# --- without delegation -----------------------------------------------------------------------------------------------


def unmounted(host: Host) -> None:
    """Only cgroup v1 is mounted."""
    (host.proc / "mountinfo").write_text("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")


def hybrid(host: Host) -> None:
    """The group has neither the memory nor the cpu controller."""
    (host.base / "cgroup.controllers").write_text("hugetlb\n")


def elsewhere(host: Host) -> None:
    """The mount shows another part of the hierarchy than the group of this process."""
    (host.proc / "mountinfo").write_text(f"41 31 0:38 /docker/1 {host.kernel.top} rw - cgroup2 cgroup2 rw\n")


def only_version_1(host: Host) -> None:
    """The process is in no group of version 2."""
    (host.proc / "cgroup").write_text("4:memory:/old\n")


def root(host: Host) -> None:
    """The group of the process is the root of the hierarchy."""
    (host.base / "cgroup.type").unlink()


def threaded(host: Host) -> None:
    """The group has the type threaded."""
    (host.base / "cgroup.type").write_text("threaded\n")


def foreign(host: Host) -> None:
    """The group belongs to another user."""
    host.kernel.is_mine = False


def shared(host: Host) -> None:
    """The group also has a process that this program did not start."""
    host.kernel.groups[host.base].add(STRANGER)
    host.kernel._show(host.base)


def gone(host: Host) -> None:
    """mountinfo cannot be read."""
    (host.proc / "mountinfo").unlink()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (unmounted, "it is not mounted; version 1, if it is mounted, is not used"),
        (hybrid, "neither the memory nor the cpu controller, but hugetlb"),
        (elsewhere, "is not visible below"),
        (only_version_1, "in no group of version 2"),
        (root, "/user.slice/host.scope is the root of the hierarchy"),
        (threaded, "of the type threaded"),
        (foreign, "was not delegated to this user: its files are not writable"),
        (shared, "has processes that this program did not start"),
        (gone, "mountinfo cannot be read"),
    ],
)
def test_without_delegation_nothing_is_changed_and_the_sentence_says_why(
    host: Host, spoil: Callable[[Host], None], told: str
) -> None:
    spoil(host)
    before = host.content()
    isolation = host.probe()
    assert isolation.sentences[0] == ALWAYS
    assert told in isolation.sentences[1]
    assert "So memory is watched" in isolation.sentences[1]
    for problems in (isolation.admit("a", None, LIMITS), isolation.change("a", LIMITS), enter(isolation.doors("a"))):
        assert problems == ()
    assert isolation.usage("a") is None
    isolation.release("a")
    isolation.close()
    assert host.content() == before
    assert host.kernel.log == []


def test_root_takes_nothing_that_the_service_manager_did_not_delegate(host: Host) -> None:
    host.systemd.mkdir()
    assert "belongs to systemd, which did not delegate it" in host.probe(uid=0).sentences[1]
    assert "systemd-run --user --scope" in host.probe(uid=0).sentences[1]
    assert host.kernel.log == []
    host.kernel.is_marked = True
    assert delegated(host.kernel, host.standing(uid=0)).controllers == ("memory", "cpu", "cpuset")


# --- memory traffic ---------------------------------------------------------------------------------------------------


def make_resctrl(root: Path, features: str = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n") -> None:
    """Makes the resctrl files of a processor with these monitoring features."""
    for name, content in (
        ("info/L3/num_closids", "16\n"),
        ("info/MB/num_closids", "8\n"),
        ("info/L3_MON/mon_features", features),
        ("info/L3_MON/num_rmids", "3\n"),
        ("schemata", "MB:0=100\nL3:0=fffff\n"),
        ("mon_groups/.keep", ""),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def test_memory_traffic_is_counted_where_possible_and_nothing_is_divided(host: Host) -> None:
    make_resctrl(host.resctrl)
    hybrid(host)
    isolation = host.probe()
    assert "up to 2 jobs" in isolation.sentences[2]
    assert (
        "cache (16 classes) and memory bandwidth (8 classes) could be divided, which is not done"
        in isolation.sentences[2]
    )
    for job in ("a", "b", "c"):
        assert isolation.admit(job, None, LIMITS) == ()
    (door,) = isolation.doors("a")
    assert isolation.doors("c") == ()  # the processor cannot tell more jobs apart
    group = Path(door).parent
    (group / "tasks").write_text("")
    assert enter((door,), host.kernel) == ()
    assert host.kernel.log == [("tasks", "0")]
    for cache, count in (("mon_L3_00", "1000\n"), ("mon_L3_01", "24\n")):
        (group / "mon_data" / cache).mkdir(parents=True)
        (group / "mon_data" / cache / "mbm_total_bytes").write_text(count)
    assert isolation.usage("a") == JobUsage(traffic_bytes=1024)
    assert isolation.traffic_bytes("a") == 1024
    (group / "mon_data" / "mon_L3_01" / "mbm_total_bytes").write_text("Unavailable\n")
    assert isolation.usage("a") is None
    assert (host.resctrl / "schemata").read_text() == "MB:0=100\nL3:0=fffff\n"
    isolation.release("b")
    assert isolation.admit("c", None, LIMITS) == ()
    assert len(isolation.doors("c")) == 1


def test_a_processor_that_does_not_count_traffic_is_reported(host: Host) -> None:
    make_resctrl(host.resctrl, features="llc_occupancy\n")
    isolation = host.probe()
    assert "the processor does not count memory traffic" in isolation.sentences[2]
    isolation.admit("a", None, LIMITS)
    assert not list((host.resctrl / "mon_groups").glob("elastichost*"))


# --- this host --------------------------------------------------------------------------------------------------------


def test_probing_this_host_without_delegation_changes_nothing() -> None:
    standing = Delegation(
        Path("/proc/self"), os.geteuid(), lambda: frozenset()
    )  # an empty family: the group cannot be divided
    before = Path("/proc/self/cgroup").read_text()
    isolation = probe(standing=standing)
    assert len(isolation.sentences) == 3
    assert isolation.sentences[1].startswith("cgroup v2: ")
    assert isolation.admit("a", None, LIMITS) == ()
    assert isolation.usage("a") is None
    isolation.close()
    assert Path("/proc/self/cgroup").read_text() == before


REAL = """
import os, sys
from elastichost.dispatcher.isolation.tiers import JobLimits, enter, probe

print("began")
before = open("/proc/self/cgroup").read()
isolation = probe()
problems = isolation.admit("a", None, JobLimits(memory_bytes=200 << 20))
if isolation.usage("a") is None:
    print(isolation.sentences[1])
    sys.exit(77)
assert problems == (), problems
pid = os.fork()
if pid == 0:
    assert enter(isolation.doors("a")) == ()
    kept = bytearray(b"x") * (400 << 20)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
assert os.WIFSIGNALED(status), status
assert isolation.usage("a").oom_kills >= 1
isolation.release("a")
isolation.close()
assert open("/proc/self/cgroup").read() == before
"""


def test_a_real_kernel_kills_a_process_above_memory_max() -> None:
    """Runs in a group of its own where systemd can delegate one."""
    command = [sys.executable, "-c", REAL]
    if Path("/run/systemd/system").exists():
        command = ["systemd-run", "--user", "--scope", "--quiet", "-p", "Delegate=yes", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        pytest.skip(f"no group was delegated: {done.stderr.strip()}")
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().removeprefix("began\n"))
    assert done.returncode == 0, done.stderr
