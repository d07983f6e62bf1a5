"""Placement on hosts: processes fit or are not placed, and released capacity is free again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.cluster.hosts import Cluster, ClusterHost, Placement, ProcessDemand
from elastichost.tuner.facts import Configuration
from tests.effort import examples

GB = 10**9
HOSTS = (ClusterHost(8, 32 * GB), ClusterHost(8, 32 * GB), ClusterHost(16, 64 * GB))
configurations = st.builds(
    Configuration,
    workers=st.integers(1, 10),
    servers=st.integers(1, 4),
    worker_cores=st.sampled_from([1, 2, 4]),
    server_cores=st.sampled_from([1, 2, 4]),
)
needs = st.builds(ProcessDemand.of, configurations, st.integers(1, 60 * GB), st.just(GB // 2))


def taken(need: ProcessDemand, placement: Placement, host: int) -> tuple[int, int]:
    """The cores and the bytes of a job on a host."""
    workers, servers = placement.get(host, (0, 0))
    c = need.configuration
    return (
        workers * c.worker_cores + servers * c.server_cores,
        workers * need.worker_bytes + servers * need.server_bytes,
    )


def check(cluster: Cluster, held: dict[int, tuple[ProcessDemand, Placement]]) -> None:
    """Asserts that free capacity is the capacity that no job holds, and that every process is placed once."""
    for index, host in enumerate(cluster.hosts):
        if cluster.is_down[index]:
            assert cluster.free_cores[index] == cluster.free_memory[index] == 0
            continue
        used = [taken(need, placement, index) for need, placement in held.values()]
        assert cluster.free_cores[index] == host.cores - sum(cores for cores, _ in used) >= 0
        assert cluster.free_memory[index] == host.memory_bytes - sum(memory for _, memory in used) >= 0
    for need, placement in held.values():
        assert sum(workers for workers, _ in placement.values()) == need.configuration.workers
        assert sum(servers for _, servers in placement.values()) == need.configuration.servers


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.sampled_from(["place", "move", "release"]), st.integers(0, 3), needs), max_size=25))
def test_capacity_is_never_exceeded(steps: list[tuple[str, int, ProcessDemand]]) -> None:
    cluster = Cluster(HOSTS)
    held: dict[int, tuple[ProcessDemand, Placement]] = {}
    for action, job, need in steps:
        if action == "place" and job not in held:
            placement = cluster.place(job, need)
        elif action == "move" and job in held:
            placement = cluster.move(job, *held[job], need)
        elif action == "release" and job in held:
            cluster.release(job, *held.pop(job))
            continue
        else:
            continue
        if placement is not None:
            held[job] = need, placement
        check(cluster, held)
    for job in list(held):
        cluster.release(job, *held.pop(job))
    check(cluster, held)


def test_a_job_is_placed_completely_or_not_at_all() -> None:
    cluster = Cluster((ClusterHost(8, 32 * GB), ClusterHost(8, 32 * GB)))
    assert cluster.place(1, ProcessDemand(Configuration(5, 1, 4, 1), GB, GB)) is None
    assert cluster.free_cores == [8, 8]
    assert cluster.place(1, ProcessDemand(Configuration(3, 1, 4, 4), GB, GB)) is not None
    assert cluster.free_cores == [0, 0]


def test_processes_with_the_same_cores_stay_on_their_hosts() -> None:
    cluster = Cluster((ClusterHost(8, 32 * GB), ClusterHost(8, 32 * GB)))
    old, new = ProcessDemand(Configuration(6, 2, 1, 1), GB, GB), ProcessDemand(Configuration(9, 2, 1, 1), GB, GB)
    placement = cluster.place(1, old)
    assert placement == {0: (6, 2)}
    assert cluster.move(1, old, placement, new) == {0: (6, 2), 1: (3, 0)}


def test_a_move_that_does_not_fit_changes_nothing() -> None:
    cluster = Cluster((ClusterHost(8, 32 * GB),))
    need = ProcessDemand(Configuration(4, 1, 1, 1), GB, GB)
    placement = cluster.place(1, need)
    assert placement is not None
    before = list(cluster.free_cores), list(cluster.free_memory)
    assert cluster.move(1, need, placement, ProcessDemand(Configuration(9, 1, 1, 1), GB, GB)) is None
    assert (cluster.free_cores, cluster.free_memory) == before


def test_a_host_fails_and_comes_back_empty() -> None:
    cluster = Cluster((ClusterHost(8, 32 * GB), ClusterHost(8, 32 * GB)))
    need = ProcessDemand(Configuration(10, 2, 1, 1), GB, GB)
    placement = cluster.place(1, need)
    assert placement is not None and set(placement) == {0, 1}
    assert cluster.fail(0) == (1,)
    placement.pop(0)
    assert cluster.move(1, need, placement, need) is None, "the lost processes do not fit on the other host"
    assert cluster.views()[0].cores == 0
    cluster.repair(0)
    assert cluster.free_cores[0] == 8
    again = cluster.move(1, need, placement, need)
    assert again is not None
    check(cluster, {1: (need, again)})


def test_memory_is_divided_between_workers_and_ps() -> None:
    need = ProcessDemand.of(Configuration(4, 2), 10 * GB, GB)
    assert (need.worker_bytes, need.server_bytes) == (GB, 3 * GB)
    poor = ProcessDemand.of(Configuration(4, 2), 3 * GB, GB)
    assert poor.worker_bytes == poor.server_bytes == GB // 2


def test_a_process_is_placed_where_it_fits() -> None:
    """Small hosts first: a large worker passes them, a small one does not."""
    cluster = Cluster((ClusterHost(4, 4 * GB), ClusterHost(4, 64 * GB), ClusterHost(32, 64 * GB)))
    large = ProcessDemand(Configuration(2, 1, 8, 2), 2 * GB, 16 * GB)
    assert cluster.place(0, large) == {1: (0, 1), 2: (2, 0)}
    small = ProcessDemand(Configuration(2, 1, 1, 1), GB, GB)
    assert cluster.place(1, small) == {0: (2, 1)}
    assert cluster.place(2, ProcessDemand(Configuration(1, 1, 17, 1), GB, GB)) is None, "16 cores are free there"


def test_views_follow_the_hosts() -> None:
    cluster = Cluster((ClusterHost(8, 32 * GB, 0.8), ClusterHost(16, 64 * GB)))
    before = cluster.views()
    assert [(one.cores, one.core_speed) for one in before] == [(8, 0.8), (16, 1.0)]
    need = ProcessDemand(Configuration(1, 1, 2, 2), GB, GB)
    placement = cluster.place(0, need)
    assert placement is not None
    assert [one.free_cores for one in cluster.views()] == [4, 16] and before[0].free_cores == 8
    cluster.fail(1)
    assert [one.cores for one in cluster.views()] == [8, 0]
    cluster.repair(1)
    cluster.release(0, need, placement)
    assert cluster.views() == before
