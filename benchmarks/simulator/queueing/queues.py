"""Workers, PS and links as queues in virtual time: the compiled part of the queue simulator.

A worker reads ahead, pulls rows from all PS, computes, and pushes to all PS. A PS is a queue with one server per core;
a link is one queue per direction. On a shared host all running threads share the cores equally. Work is measured on two
clocks, one for computing and one for all other work; they run slower than wall time when the cores do not suffice. Each
clock has a heap of pending events, so an event costs the logarithm of the number of pending events.
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
# kinds of events
PULL_AT_SERVERS, PUSH_AT_SERVER, PULL_SERVED, PUSH_SERVED, PULLED, PUSHED, SERIAL_DONE, COMPUTED, READ = range(9)
NOTHING, PULLS, BOTH = 0, 1, 2
UNBOUNDED = 1 << 40  # iterations that a worker may be ahead of the slowest
OVERLAPS = {"nothing": NOTHING, "pulls": PULLS, "both": BOTH}

WORKER = np.dtype(
    [
        ("buffered", "i8"),  # batches that were read but whose rows were not pulled
        ("is_reading", "i8"),
        ("pulls_issued", "i8"),
        ("pulls_done", "i8"),
        ("pull_parts", "i8"),  # requests of the pull that were not served yet
        ("is_computing", "i8"),
        ("computed", "i8"),
        ("pushes_done", "i8"),
        ("drift", "f8"),  # standard normal noise of computing, correlated in time
        ("read_began", "f8"),
        ("pull_began", "f8"),
        ("pull_ends", "f8"),  # time at which the last part served so far arrives
        ("compute_began", "f8"),
        ("work_began", "f8"),  # on the clock of other work, which measures the CPU time of a thread
    ]
)
PUSH = np.dtype([("parts", "i8"), ("began", "f8")])
SUMS = np.dtype([("compute_s", "f8"), ("read_s", "f8"), ("exchange_s", "f8"), ("worker_cpu_s", "f8")])
SERVER = np.dtype(
    [
        ("serving", "i8"),  # busy cores
        ("waiting", "i8"),  # requests in the queue
        ("first", "i8"),  # position of the oldest of them in the ring
        ("out_free", "f8"),  # time at which its outgoing link is free
        ("in_free", "f8"),
        ("cpu_s", "f8"),
    ]
)


def _inlined(function: Callable[P, R]) -> Callable[P, R]:
    return cast(Callable[P, R], numba.njit(error_model="numpy", forceinline=True, _nrt=False)(function))


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function that allocates nothing. Without `_nrt=False`, counting references to the arrays of the state
    takes 6/7 of the time."""
    return cast(Callable[P, R], numba.njit(cache=_KEPT, nogil=True, error_model="numpy", _nrt=False)(function))


class QueueCosts(NamedTuple):
    """The costs of a job in a configuration: counts, seconds of an iteration, and their variation. `*_sigma`: standard
    deviations of logarithms."""

    workers: int
    servers: int
    server_cores: int
    threads: int  # computing threads of a worker
    host_cores: int  # 0: each process has its own cores
    overlap: int
    ahead: int  # iterations that a worker may be ahead of the slowest
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
    wire_s: npt.NDArray[np.float64]  # [servers] seconds on the link of the PS, in each direction


class QueueState(NamedTuple):
    """The state of a simulation."""

    clocks: npt.NDArray[np.float64]  # [3]
    running: npt.NDArray[np.float64]  # [2] number of computing threads, of other threads
    keys: npt.NDArray[np.float64]  # [3, room] heaps: times of events on the heap's clock
    events: npt.NDArray[np.int64]  # [3, room]
    sizes: npt.NDArray[np.int64]  # [3]
    workers: Any  # WORKER [workers]
    pushes: Any  # PUSH [workers, 2]: a worker may have two pushes in flight
    servers: Any  # SERVER [servers]
    ring: npt.NDArray[np.int64]  # [servers, room] queued requests
    sums: Any  # SUMS [1] over all iterations
    finished: npt.NDArray[np.float64]  # [iterations of all workers] times at which they ended
    done: npt.NDArray[np.int64]  # [2] iterations of all workers together, of the slowest worker


def new_state(costs: QueueCosts, total: int) -> QueueState:
    """The state at the start. total: number of iterations of all workers together."""
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


# --- workers ----------------------------------------------------------------------------------------------------------


@_inlined
def _varied(mean_s: float, sigma: float, normal: float) -> float:
    """A log-normal value with this mean."""
    return mean_s * math.exp(sigma * normal - 0.5 * sigma * sigma)


@_inlined
def _advance(state: QueueState, costs: QueueCosts, index: int, generator: np.random.Generator) -> None:
    """Starts everything that this worker may start now."""
    now = state.clocks[WALL]
    worker = state.workers[index]
    computed, pushed = worker.computed, worker.pushes_done
    may_compute = pushed >= computed - 1 if costs.overlap == BOTH else pushed == computed
    may_compute = may_compute and (costs.is_sync or computed <= state.done[1] + costs.ahead)
    if may_compute and worker.is_computing == 0 and worker.pulls_done > computed:
        _begin_computing(state, costs, index, generator)
    issued = worker.pulls_issued
    # during computing only the pull of the next batch may run
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
    """Starts the serial part with one thread; the other threads start after it."""
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
    """Ends computing; the gradients queue for the links of the PS."""
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


# --- parameter servers ------------------------------------------------------------------------------------------------


@_inlined
def _arrived(state: QueueState, costs: QueueCosts, event: int, generator: np.random.Generator) -> None:
    """A request arrives at its PS: a core serves it, or it is queued. event: the event of its end."""
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
    """Ends the service of a request: the answer leaves (rows over the link), and the oldest queued request is served
    next. The answer of the last PS ends a pull or push."""
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
    """Ends an iteration; workers that waited for it may continue."""
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
    """Sets the clocks to the next event, and returns its heap.

    All runnable threads share the cores equally. If there are more threads than cores, computing loses time by context
    switches, and because the threads of one batch wait for each other. A part of computing waits for memory;
    `memory_threads` threads saturate its bandwidth.
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
    """Simulates until all workers together have done `until` iterations."""
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
