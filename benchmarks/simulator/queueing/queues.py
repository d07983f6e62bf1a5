"""Workers, PS and links as queues in virtual time: the compiled part of the queue simulator.

A worker reads ahead, pulls rows from all PS, computes, pushes to all PS. A PS is a queue with as many servers as it has
cores, a link a queue for each direction. On a shared host all that runs shares the cores equally: there are two clocks
of work done, one for computing and one for everything else, which go slower than wall time when the cores do not
suffice. What runs is kept in one heap per clock, so an event costs the logarithm of what runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from elastichost.host.kernel_cache import use_kernel_cache

__all__ = ["OVERLAPS", "UNBOUNDED", "WALL", "QueueCosts", "QueueState", "new_state", "run"]

P = ParamSpec("P")
R = TypeVar("R")
_KEPT = use_kernel_cache()
# clocks and their heaps: wall time, computing, other work
WALL, COMPUTING, SERVING = 0, 1, 2
# what an event says
PULL_AT_SERVERS, PUSH_AT_SERVER, PULL_SERVED, PUSH_SERVED, PULLED, PUSHED, SERIAL_DONE, COMPUTED, READ = range(9)
NOTHING, PULLS, BOTH = 0, 1, 2
UNBOUNDED = 1 << 40  # iterations that a worker may be ahead of the slowest
OVERLAPS = {"nothing": NOTHING, "pulls": PULLS, "both": BOTH}

WORKER = np.dtype(
    [
        ("buffered", "i8"),  # batches read, and not yet pulled for
        ("is_reading", "i8"),
        ("pulls_issued", "i8"),
        ("pulls_done", "i8"),
        ("pull_parts", "i8"),  # requests of the pull that are not served yet
        ("is_computing", "i8"),
        ("computed", "i8"),
        ("pushes_done", "i8"),
        ("drift", "f8"),  # standard normal, correlated in time
        ("read_began", "f8"),
        ("pull_began", "f8"),
        ("pull_ends", "f8"),  # so far: when the last part that is served arrives
        ("compute_began", "f8"),
        ("work_began", "f8"),  # on the clock of other work, which is the time that a thread has a core
    ]
)
PUSH = np.dtype([("parts", "i8"), ("began", "f8")])
SUMS = np.dtype([("compute_s", "f8"), ("read_s", "f8"), ("exchange_s", "f8"), ("worker_cpu_s", "f8")])
SERVER = np.dtype(
    [
        ("serving", "i8"),  # cores at work
        ("waiting", "i8"),
        ("first", "i8"),  # of those that wait, in the ring
        ("out_free", "f8"),  # when its link has sent all it was given
        ("in_free", "f8"),
        ("cpu_s", "f8"),
    ]
)


def _inlined(function: Callable[P, R]) -> Callable[P, R]:
    return cast(Callable[P, R], numba.njit(error_model="numpy", forceinline=True, _nrt=False)(function))


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Nothing is allocated: without `_nrt=False` counting references to the state's arrays takes 6/7 of the time."""
    return cast(Callable[P, R], numba.njit(cache=_KEPT, nogil=True, error_model="numpy", _nrt=False)(function))


class QueueCosts(NamedTuple):
    """What `run` is told: counts, seconds of an iteration, and how they vary. `*_sigma`: of the logarithm."""

    workers: int
    servers: int
    server_cores: int
    threads: int  # that a worker computes with
    host_cores: int  # 0: everyone has cores of its own
    overlap: int
    ahead: int  # iterations a worker may be ahead of the slowest
    is_sync: bool
    serial_s: float
    parallel_s: float
    compute_sigma: float
    autocorrelation: float
    straggle_probability: float
    straggle_factor: float
    read_s: float
    read_sigma: float
    server_sigma: float
    latency_s: float
    memory_threads: float
    memory_part: float
    oversubscription: float
    pull_s: npt.NDArray[np.float64]  # [servers] core-seconds of a worker's request
    push_s: npt.NDArray[np.float64]
    wire_s: npt.NDArray[np.float64]  # of it on the PS' link, in each direction


class QueueState(NamedTuple):
    """Everything that changes while it runs."""

    clocks: npt.NDArray[np.float64]  # [3]
    running: npt.NDArray[np.float64]  # [2] computing threads, other threads
    keys: npt.NDArray[np.float64]  # [3, room] heaps: when, on the heap's clock
    events: npt.NDArray[np.int64]  # [3, room]
    sizes: npt.NDArray[np.int64]  # [3]
    workers: Any  # WORKER [workers]
    pushes: Any  # PUSH [workers, 2]: two may be on the way
    servers: Any  # SERVER [servers]
    ring: npt.NDArray[np.int64]  # [servers, room] requests that wait
    sums: Any  # SUMS [1] over all iterations
    finished: npt.NDArray[np.float64]  # [iterations of all workers] when
    done: npt.NDArray[np.int64]  # [2] iterations of all workers, of the slowest


def new_state(costs: QueueCosts, total: int) -> QueueState:
    """Nothing has begun. total: iterations of all workers together."""
    workers, servers = costs.workers, costs.servers
    room = 3 * workers * (servers + 1) + servers * costs.server_cores + 8
    return QueueState(
        clocks=np.zeros(3),
        running=np.zeros(2),
        keys=np.zeros((3, room)),
        events=np.zeros((3, room), dtype=np.int64),
        sizes=np.zeros(3, dtype=np.int64),
        workers=np.zeros(workers, dtype=WORKER),
        pushes=np.zeros((workers, 2), dtype=PUSH),
        servers=np.zeros(servers, dtype=SERVER),
        ring=np.zeros((servers, 3 * workers + 1), dtype=np.int64),
        sums=np.zeros(1, dtype=SUMS),
        finished=np.zeros(total),
        done=np.zeros(2, dtype=np.int64),
    )


# --- heaps ------------------------------------------------------------------------------------------------------------


@_inlined
def _event(kind: int, worker: int, server: int, slot: int) -> int:
    return (((kind << 1 | slot) << 20 | worker) << 20) | server


@_inlined
def _schedule(state: QueueState, heap: int, at: float, event: int) -> None:
    keys, events = state.keys, state.events
    place = state.sizes[heap]
    state.sizes[heap] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if keys[heap, parent] <= at:
            break
        keys[heap, place], events[heap, place] = keys[heap, parent], events[heap, parent]
        place = parent
    keys[heap, place], events[heap, place] = at, event


@_inlined
def _take_first(state: QueueState, heap: int) -> int:
    keys, events = state.keys, state.events
    first = events[heap, 0]
    state.sizes[heap] -= 1
    size = state.sizes[heap]
    at, event = keys[heap, size], events[heap, size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and keys[heap, child + 1] < keys[heap, child]:
            child += 1
        if keys[heap, child] >= at:
            break
        keys[heap, place], events[heap, place] = keys[heap, child], events[heap, child]
        place = child
    keys[heap, place], events[heap, place] = at, event
    return int(first)


# --- what a worker may begin ------------------------------------------------------------------------------------------


@_inlined
def _varied(mean_s: float, sigma: float, normal: float) -> float:
    """Log-normal with this mean."""
    return mean_s * math.exp(sigma * normal - 0.5 * sigma * sigma)


@_inlined
def _advance(state: QueueState, costs: QueueCosts, index: int, generator: np.random.Generator) -> None:
    """Begins all that this worker may begin now."""
    now = state.clocks[WALL]
    worker = state.workers[index]
    computed, pushed = worker.computed, worker.pushes_done
    may_compute = pushed >= computed - 1 if costs.overlap == BOTH else pushed == computed
    may_compute = may_compute and (costs.is_sync or computed <= state.done[1] + costs.ahead)
    if may_compute and worker.is_computing == 0 and worker.pulls_done > computed:
        _begin_computing(state, costs, index, generator)
    issued = worker.pulls_issued
    # beside computing: the pull for the next batch, and no other
    may_pull = pushed == issued if costs.overlap == NOTHING else issued <= computed + worker.is_computing
    if costs.is_sync:
        may_pull = may_pull and state.done[1] >= issued
    if may_pull and worker.pulls_done == issued and (costs.read_s == 0.0 or worker.buffered > 0):
        worker.pulls_issued += 1
        worker.buffered -= costs.read_s > 0.0
        worker.pull_parts = costs.servers
        worker.pull_began = now
        worker.pull_ends = now
        _schedule(state, WALL, now + costs.latency_s, _event(PULL_AT_SERVERS, index, 0, 0))
    if costs.read_s > 0.0 and worker.is_reading == 0 and worker.buffered < 2:
        worker.is_reading = 1
        worker.read_began = now
        work = _varied(costs.read_s, costs.read_sigma, generator.standard_normal())
        state.running[1] += 1
        state.sums[0].worker_cpu_s += work
        _schedule(state, SERVING, state.clocks[SERVING] + work, _event(READ, index, 0, 0))


@_inlined
def _begin_computing(state: QueueState, costs: QueueCosts, index: int, generator: np.random.Generator) -> None:
    """One thread first; the others come when its serial part is done."""
    worker, kept = state.workers[index], costs.autocorrelation
    worker.drift = kept * worker.drift + math.sqrt(1.0 - kept * kept) * generator.standard_normal()
    worker.is_computing = 1
    worker.compute_began = state.clocks[WALL]
    worker.work_began = state.clocks[SERVING]
    state.running[0] += 1
    work = _varied(costs.serial_s, costs.compute_sigma, worker.drift)
    _schedule(state, COMPUTING, state.clocks[COMPUTING] + work, _event(SERIAL_DONE, index, 0, 0))


@_inlined
def _serial_done(state: QueueState, costs: QueueCosts, index: int, generator: np.random.Generator) -> None:
    worker = state.workers[index]
    state.sums[0].worker_cpu_s += state.clocks[SERVING] - worker.work_began
    worker.work_began = state.clocks[SERVING]
    state.running[0] += costs.threads - 1
    work = _varied(costs.parallel_s, costs.compute_sigma, worker.drift)
    if costs.straggle_probability > 0.0 and generator.random() < costs.straggle_probability:
        work += (costs.straggle_factor - 1.0) * (work + costs.serial_s)
    _schedule(state, COMPUTING, state.clocks[COMPUTING] + work, _event(COMPUTED, index, 0, 0))


@_inlined
def _computed(state: QueueState, costs: QueueCosts, index: int) -> None:
    """The gradients leave; they queue for the PS' links."""
    worker, now = state.workers[index], state.clocks[WALL]
    state.sums[0].compute_s += now - worker.compute_began
    state.sums[0].worker_cpu_s += costs.threads * (state.clocks[SERVING] - worker.work_began)
    state.running[0] -= costs.threads
    slot = worker.computed & 1
    worker.is_computing = 0
    worker.computed += 1
    state.pushes[index, slot].parts = costs.servers
    state.pushes[index, slot].began = now
    for server in range(costs.servers):
        sent = max(now, state.servers[server].in_free) + costs.wire_s[server]
        state.servers[server].in_free = sent
        _schedule(state, WALL, sent + costs.latency_s, _event(PUSH_AT_SERVER, index, server, slot))


# --- what a PS does ---------------------------------------------------------------------------------------------------


@_inlined
def _arrived(state: QueueState, costs: QueueCosts, event: int, generator: np.random.Generator) -> None:
    """A request is at its PS: one of its cores begins, or it waits. `event`: with the kind that its end will have."""
    index = event & 0xFFFFF
    server = state.servers[index]
    if server.serving < costs.server_cores:
        _begin_serving(state, costs, event, generator)
    else:
        state.ring[index, (server.first + server.waiting) % state.ring.shape[1]] = event
        server.waiting += 1


@_inlined
def _begin_serving(state: QueueState, costs: QueueCosts, event: int, generator: np.random.Generator) -> None:
    index = event & 0xFFFFF
    mean_s = costs.push_s[index] if event >> 41 == PUSH_SERVED else costs.pull_s[index]
    work = _varied(mean_s, costs.server_sigma, generator.standard_normal())
    state.servers[index].serving += 1
    state.servers[index].cpu_s += work
    state.running[1] += 1
    _schedule(state, SERVING, state.clocks[SERVING] + work, event)


@_inlined
def _served(state: QueueState, costs: QueueCosts, event: int, generator: np.random.Generator) -> None:
    """The answer leaves, rows over the link; the request that waits longest is next. The last answer ends a request."""
    slot, owner, index = (event >> 40) & 1, (event >> 20) & 0xFFFFF, event & 0xFFFFF
    server, worker, now = state.servers[index], state.workers[owner], state.clocks[WALL]
    server.serving -= 1
    state.running[1] -= 1
    if event >> 41 == PULL_SERVED:
        server.out_free = max(now, server.out_free) + costs.wire_s[index]
        worker.pull_ends = max(worker.pull_ends, server.out_free + costs.latency_s)
        worker.pull_parts -= 1
        if worker.pull_parts == 0:
            _schedule(state, WALL, worker.pull_ends, _event(PULLED, owner, 0, 0))
    else:
        state.pushes[owner, slot].parts -= 1
        if state.pushes[owner, slot].parts == 0:
            _schedule(state, WALL, now + costs.latency_s, _event(PUSHED, owner, 0, slot))
    if server.waiting > 0:
        longest = state.ring[index, server.first]
        server.first = (server.first + 1) % state.ring.shape[1]
        server.waiting -= 1
        _begin_serving(state, costs, longest, generator)


@_inlined
def _pushed(state: QueueState, costs: QueueCosts, index: int, slot: int, generator: np.random.Generator) -> None:
    """An iteration is done, and perhaps others may go on."""
    now = state.clocks[WALL]
    state.sums[0].exchange_s += now - state.pushes[index, slot].began
    state.workers[index].pushes_done += 1
    state.finished[state.done[0]] = now
    state.done[0] += 1
    least = state.workers[index].pushes_done
    for other in range(costs.workers):
        least = min(least, state.workers[other].pushes_done)
    if least > state.done[1] and costs.ahead < UNBOUNDED:
        state.done[1] = least
        for other in range(costs.workers):
            _advance(state, costs, other, generator)
    else:
        _advance(state, costs, index, generator)


# --- time -------------------------------------------------------------------------------------------------------------


@_inlined
def _next_heap(state: QueueState, costs: QueueCosts) -> int:
    """Sets the clocks to the next event; says in which heap it is.

    Cores are shared equally by all that is runnable; a core that is wanted by more than one thread loses time by
    switching, and the threads of one batch wait for each other. Of computing a part waits for memory, whose bandwidth
    `memory_threads` threads use up.
    """
    share, computing = 1.0, 1.0
    if costs.host_cores > 0:
        demand = (state.running[0] + state.running[1]) / costs.host_cores
        if demand > 1.0:
            share = 1.0 / demand
            computing = share / (1.0 + costs.oversubscription * (demand - 1.0))
        if costs.memory_threads > 0.0:
            pressure = max(1.0, state.running[0] * share / costs.memory_threads)
            computing /= 1.0 - costs.memory_part + costs.memory_part * pressure
    best, wait = -1, np.inf
    for heap in range(3):
        if state.sizes[heap] > 0:
            speed = 1.0 if heap == WALL else computing if heap == COMPUTING else share
            candidate = max(0.0, state.keys[heap, 0] - state.clocks[heap]) / speed
            if candidate < wait:
                best, wait = heap, candidate
    state.clocks[WALL] += wait
    state.clocks[COMPUTING] += wait * computing
    state.clocks[SERVING] += wait * share
    return best


@_compiled
def run(state: QueueState, costs: QueueCosts, until: int, generator: np.random.Generator) -> None:
    """Goes on until so many iterations are done by all workers together."""
    if state.clocks[WALL] == 0.0:
        for index in range(costs.workers):
            _advance(state, costs, index, generator)
    while state.done[0] < until:
        event = _take_first(state, _next_heap(state, costs))
        kind, slot, index = event >> 41, (event >> 40) & 1, (event >> 20) & 0xFFFFF
        if kind in (PULL_SERVED, PUSH_SERVED):
            _served(state, costs, event, generator)
        elif kind == PUSH_AT_SERVER:
            _arrived(state, costs, _event(PUSH_SERVED, index, event & 0xFFFFF, slot), generator)
        elif kind == PULL_AT_SERVERS:
            for server in range(costs.servers):
                _arrived(state, costs, _event(PULL_SERVED, index, server, 0), generator)
        elif kind == PUSHED:
            _pushed(state, costs, index, slot, generator)
        elif kind == SERIAL_DONE:
            _serial_done(state, costs, index, generator)
        elif kind == COMPUTED:
            _computed(state, costs, index)
            _advance(state, costs, index, generator)
        elif kind == PULLED:
            state.workers[index].pulls_done += 1
            state.sums[0].exchange_s += state.clocks[WALL] - state.workers[index].pull_began
            _advance(state, costs, index, generator)
        else:
            state.workers[index].is_reading = 0
            state.workers[index].buffered += 1
            state.running[1] -= 1
            state.sums[0].read_s += state.clocks[WALL] - state.workers[index].read_began
            _advance(state, costs, index, generator)
