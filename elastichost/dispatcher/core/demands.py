"""The resources that a job demands: first from its job file and from jobs like it, then from measurements. Pure.

Theory of operation. The measured values do not depend on the jobs that run beside: the CPU seconds of a sample, of the
workers (c_w) and of all processes (c), and the samples/s that the reader of one worker can deliver (r). The speed of w
workers alone on the host follows from them:

    samples_per_s(w) = min(w * r, e * min(w * threads / c_w, cores / c))

The efficiency e <= 1 covers the time in which the processes of the job wait for each other. It is measured only while
no other job needs the cores. On a GPU a sample takes g seconds of computing and m seconds of memory transfers, and the
speed is at most 1 / g.

The demand row (see `tuner.colocation.facts`) is: c * samples_per_s / cores of the host; for the memory bandwidth the
bytes that the processor counted (resctrl), else an estimate from the bytes of the rows; for the input the bytes that
workers read, as a share of what all jobs can read together (`input_capacity`); g * samples_per_s for the GPU and m *
samples_per_s for its memory; for the link to the GPU the bytes that NVML told while no other process used that GPU,
else an estimate from the bytes of the rows and of their gradients. `basis_of` says which is which.
"""

from __future__ import annotations

import msgspec

from elastichost.dispatcher.core.input_capacity import BLOCKED
from elastichost.dispatcher.facts import BUSY, JobSample
from elastichost.metrics import FrontierPoint
from elastichost.tuner.colocation.facts import DEVICE_RESOURCES, HOST_RESOURCES, Basis, Mode
from elastichost.tuner.colocation.kinds import Kind, prior_of

__all__ = [
    "LINK_BYTES_PER_S",
    "Examined",
    "HostPower",
    "Known",
    "MemoryOfSize",
    "basis_of",
    "learnt",
    "memory_of",
    "modes_of",
    "prior",
    "waits_for_unknown",
    "with_frontier",
]

# CPU seconds of a sample before a measurement: a fixed part, and a part for each id. Assumed: a DLRM on a current core.
SAMPLE_CPU_S, ID_CPU_S = 6e-6, 0.3e-6
LINK_BYTES_PER_S = 12e9  # of a link to a GPU that NVML does not tell. Assumed: PCIe 3.0 x16, the slowest that is likely
LINK_TOUCHES = 2.0  # a row is copied to the GPU, and its gradient back
ROW_TOUCHES = 3.0  # a row is read once for the sample, and read and written when it is updated
PRIOR_WORTH_S = 1.0  # seconds of measurement beyond which a job counts as measured
LEAST_EFFICIENCY = 0.2
IDLE = 0.7  # a worker that uses less than this share of its cores is limited by something other than computing
MOST_WORKERS = 64  # that the dispatcher chooses by itself; a job file may state more
LEAST_MORE = 1.02  # least ratio of speeds for which a mode with more workers is worth its memory


class MemoryOfSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The estimated peak memory with a number of workers, without margins. arena_bytes: the part of host_bytes that
    lies in the file system of arenas."""

    workers: int
    host_bytes: int
    gpu_bytes: int = 0
    arena_bytes: int = 0


class Examined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a job's examination.

    samples_planned: over all epochs. least_workers, most_workers: range that the dispatcher may choose from. twin:
    digest that is equal for jobs of the same speed (`shapes.twin_of`). memory: ordered by number of workers. servers:
    number of PS. threads: of one worker. reader_samples_per_s: limit of the reader of one worker; 0: no limit is
    stated. row_bytes: bytes of all rows that one sample reads. gpus: number of GPUs that the job uses. size_is_open:
    the dispatcher may choose the number of workers. breakdown: (name, bytes) of the parts of the first estimate."""

    job: str
    samples_planned: int
    least_workers: int
    most_workers: int
    twin: str
    memory: tuple[MemoryOfSize, ...]
    servers: int = 1
    threads: int = 1
    reader_samples_per_s: float = 0.0
    row_bytes: int = 0
    ids_per_sample: float = 0.0
    gpus: int = 0
    size_is_open: bool = True
    breakdown: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured of a job or its twins; the symbols are those of the module's docstring.

    worker_cpu_s, all_cpu_s: c_w and c. reader_samples_per_s: r, measured while a worker was limited by something other
    than computing; 0: never seen. efficiency: e. seconds: duration of all measurements; 0: the values are a prior.
    gpu_s, gpu_memory_s: g and m; None: not measured on a GPU. Bytes of a sample, None: not measured: read_bytes: that
    workers read; traffic_bytes: moved between memory and caches; message_bytes: of messages between its processes;
    link_bytes: over the bus to its GPU, or from it.
    wait_share: share of their time in which workers waited for input. is_reader_shared: r was only measured while other
    jobs waited for their input too, so alone a reader may be faster."""

    worker_cpu_s: float
    all_cpu_s: float
    reader_samples_per_s: float = 0.0
    efficiency: float = 1.0
    seconds: float = 0.0
    gpu_s: float | None = None
    gpu_memory_s: float = 0.0
    read_bytes: float | None = None
    traffic_bytes: float | None = None
    message_bytes: float | None = None
    link_bytes: float | None = None
    wait_share: float = 0.0
    is_reader_shared: bool = False

    @property
    def is_measured(self) -> bool:
        return self.seconds > PRIOR_WORTH_S


class HostPower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of cores and the memory bandwidth of the host. input_bytes_per_s: that all jobs together can read;
    None: no limit was seen. link_bytes_per_s: of the slowest link to a GPU, in one direction."""

    cores: int
    memory_bytes_per_s: float
    input_bytes_per_s: float | None = None
    link_bytes_per_s: float = LINK_BYTES_PER_S


def prior(examined: Examined) -> Known:
    """Returns the values that are assumed before any job like it was measured."""
    cpu_s = SAMPLE_CPU_S + ID_CPU_S * examined.ids_per_sample
    return Known(cpu_s, 1.1 * cpu_s)


def learnt(known: Known, look: JobSample, threads: int, cores: int, *, is_contested: bool = False) -> Known:
    """Returns `known` with one more measurement; a measurement without samples is ignored. threads: of one worker.
    cores: of the host. is_contested: another job waits for its input too, so this one may read slower than alone."""
    if look.samples <= 0 or look.seconds <= 0:
        return known
    weight = look.seconds / (look.seconds + min(known.seconds, 20.0) + (0.2 if not known.seconds else 0.0))
    worker_cpu_s = _mixed(known.worker_cpu_s, look.worker_cpu_s / look.samples, weight)
    all_cpu_s = _mixed(known.all_cpu_s, look.all_cpu_s / look.samples, weight)
    is_held_up = _is_held_up(look, threads)
    reader, is_shared = _reader(known, look, weight, is_held_up, is_contested)
    efficiency = known.efficiency
    if not is_held_up and (look.host_share < BUSY or look.all_cpu_s > BUSY * look.host_share * look.seconds * cores):
        limit = min(look.workers * threads / worker_cpu_s, cores / max(all_cpu_s, worker_cpu_s))
        seen = min(1.0, max(LEAST_EFFICIENCY, look.samples / look.seconds / limit))
        efficiency = _mixed(efficiency, seen, weight)
    return Known(
        worker_cpu_s,
        max(all_cpu_s, worker_cpu_s),
        reader,
        efficiency,
        known.seconds + look.seconds,
        *_on_gpu(known, look, weight),
        read_bytes=_of_sample(known.read_bytes, look.read_bytes, look.samples, weight),
        traffic_bytes=_of_sample(known.traffic_bytes, look.traffic_bytes, look.samples, weight),
        message_bytes=_of_sample(known.message_bytes, look.message_bytes, look.samples, weight),
        link_bytes=_of_sample(known.link_bytes, look.link_bytes, look.samples, weight),
        is_reader_shared=is_shared,
        wait_share=_mixed(known.wait_share, look.input_wait_share, weight),
    )


def _reader(known: Known, look: JobSample, weight: float, is_held_up: bool, is_contested: bool) -> tuple[float, bool]:
    """Returns r with one more measurement, and whether it was only measured beside other jobs that wait."""
    reader, is_shared = known.reader_samples_per_s, known.is_reader_shared
    seen = look.samples / look.seconds / max(1, look.workers)
    if not is_held_up or look.is_crowded:
        return (max(reader, seen) if reader else 0.0), is_shared  # the reader is at least as fast
    if is_contested:
        return max(reader, seen), is_shared or reader == 0
    return (seen if reader == 0 or is_shared else _mixed(reader, seen, weight)), False


def _is_held_up(look: JobSample, threads: int) -> bool:
    """Whether the workers were limited by their input. Workers that do not tell how long they waited for it are if they
    leave their cores idle."""
    if look.input_wait_s is not None:
        return look.input_wait_share >= BLOCKED
    return look.worker_cpu_s < IDLE * look.seconds * look.workers * threads


def _of_sample(known: float | None, counted: float | None, samples: float, weight: float) -> float | None:
    """The value of one sample with one more count; None: never counted."""
    if counted is None:
        return known
    return counted / samples if known is None else _mixed(known, counted / samples, weight)


def _on_gpu(known: Known, look: JobSample, weight: float) -> tuple[float | None, float]:
    """Returns g and m with one more measurement."""
    if look.gpu_s is None:
        return known.gpu_s, known.gpu_memory_s
    if known.gpu_s is None:
        return look.gpu_s / look.samples, look.gpu_memory_s / look.samples
    return (
        _mixed(known.gpu_s, look.gpu_s / look.samples, weight),
        _mixed(known.gpu_memory_s, look.gpu_memory_s / look.samples, weight),
    )


def _mixed(old: float, new: float, weight: float) -> float:
    return (1 - weight) * old + weight * new


def modes_of(examined: Examined, known: Known, host: HostPower, current: int | None = None) -> tuple[Mode, ...]:
    """Returns the modes of a job, by rising number of workers. A number that is less than 2 % faster than the mode
    before it is left out, unless it is `current`: the number of workers that the job has now."""
    # the job file may ask for more than MOST_WORKERS at least: such a job has that one mode
    most = max(examined.least_workers, min(examined.most_workers, 2 * host.cores, MOST_WORKERS))
    counts = range(examined.least_workers, most + 1) if examined.size_is_open else (examined.least_workers,)
    found: list[Mode] = []
    for workers in counts:
        mode = _mode(examined, known, host, workers)
        if not found or workers == current or mode.samples_per_s > LEAST_MORE * found[-1].samples_per_s:
            found.append(mode)
    return tuple(found)


def _mode(examined: Examined, known: Known, host: HostPower, workers: int) -> Mode:
    computing = min(workers * examined.threads / known.worker_cpu_s, host.cores / known.all_cpu_s)
    limits = [known.efficiency * computing]
    # a rate that was measured beside others is a share of their source where they have one, and no limit of a reader
    own = 0.0 if known.is_reader_shared and host.input_bytes_per_s else known.reader_samples_per_s
    readers = [rate for rate in (examined.reader_samples_per_s, own) if rate > 0]
    if readers:
        limits.append(workers * min(readers))
    memory = memory_of(examined, workers)
    if memory.gpu_bytes and known.gpu_s:
        limits.append(1 / known.gpu_s)
    if host.input_bytes_per_s and known.read_bytes:
        limits.append(host.input_bytes_per_s / known.read_bytes)
    speed = min(limits)
    cores = min(1.0, speed * known.all_cpu_s / host.cores)
    traffic = ROW_TOUCHES * examined.row_bytes if known.traffic_bytes is None else known.traffic_bytes
    bandwidth = min(1.0, speed * traffic / host.memory_bytes_per_s)
    reading = min(1.0, speed * (known.read_bytes or 0.0) / host.input_bytes_per_s) if host.input_bytes_per_s else 0.0
    return Mode(
        workers=workers,
        servers=examined.servers,
        worker_cores=examined.threads,
        samples_per_s=speed,
        demand=(cores, bandwidth, reading, *_device(examined, known, host, speed, bool(memory.gpu_bytes))),
        memory_bytes=memory.host_bytes,
        gpu_memory_bytes=memory.gpu_bytes,
        arena_bytes=memory.arena_bytes,
    )


def basis_of(known: Known, host: HostPower) -> tuple[Basis, ...]:
    """Where each demand of a job comes from, in the order of RESOURCES."""
    of_cores: Basis = "measured" if known.is_measured else "estimated"
    of_bandwidth: Basis = "estimated" if known.traffic_bytes is None else "measured"
    of_input: Basis = "unlimited"
    if host.input_bytes_per_s:
        of_input = "estimated" if known.read_bytes is None else "measured"
    of_gpu: Basis = "estimated" if known.gpu_s is None else "measured"
    of_link: Basis = "estimated" if known.gpu_s is None or known.link_bytes is None else "measured"
    return of_cores, of_bandwidth, of_input, of_gpu, of_gpu, of_link


def waits_for_unknown(known: Known, host: HostPower) -> bool:
    """Whether a job was seen to wait for the bytes of a source of which no capacity is known."""
    has_waited = known.is_measured and known.wait_share >= BLOCKED and bool(known.read_bytes)
    return has_waited and host.input_bytes_per_s is None


def _device(examined: Examined, known: Known, host: HostPower, speed: float, is_gpu: bool) -> tuple[float, ...]:
    """Returns the demand of a mode for DEVICE_RESOURCES: the GPU, its memory bandwidth, the link to it."""
    if not is_gpu:
        return (0.0,) * len(DEVICE_RESOURCES)
    if known.gpu_s is None:
        kind: Kind = "input" if examined.reader_samples_per_s else "balanced"
        return prior_of(kind, 1, 1, is_gpu=True).demand[len(HOST_RESOURCES) :]
    link_bytes = LINK_TOUCHES * examined.row_bytes if known.link_bytes is None else known.link_bytes
    link_s = link_bytes / host.link_bytes_per_s
    return tuple(min(1.0, speed * each) for each in (known.gpu_s, known.gpu_memory_s, link_s))


def memory_of(examined: Examined, workers: int) -> MemoryOfSize:
    """Returns the estimate for a number of workers: one of `examined`, otherwise on the line through its first and its
    last."""
    known = examined.memory
    for one in known:
        if one.workers == workers:
            return one
    if len(known) == 1:
        return known[0]
    first, last = known[0], known[-1]
    more, steps = workers - first.workers, max(1, last.workers - first.workers)

    def between(least: int, most: int) -> int:
        return int(least + more * ((most - least) / steps))

    return MemoryOfSize(
        workers,
        between(first.host_bytes, last.host_bytes),
        between(first.gpu_bytes, last.gpu_bytes),
        between(first.arena_bytes, last.arena_bytes),
    )


def with_frontier(modes: tuple[Mode, ...], frontier: tuple[FrontierPoint, ...], current: int) -> tuple[Mode, ...]:
    """Returns the modes with speeds from the run's own tuner, where its frontier has the size.

    Only the ratio to the tuner's speed of the present size is used, because its model was fitted while other jobs used
    a part of the host. Modes that are not on the frontier stay as they are. current: present number of workers."""
    points = {(one.workers, one.worker_cores): one.samples_per_s for one in frontier}
    here = next((mode for mode in modes if mode.workers == current), None)
    if here is None or not points.get((current, here.worker_cores)):
        return modes
    reference = points[current, here.worker_cores]
    return tuple(_scaled(mode, here, points.get((mode.workers, mode.worker_cores), 0.0) / reference) for mode in modes)


def _scaled(mode: Mode, here: Mode, ratio: float) -> Mode:
    """Returns a mode with `ratio` times the speed of `here`, and its host demand in proportion. ratio 0: not known."""
    if ratio <= 0 or mode.samples_per_s <= 0:
        return mode
    speed = here.samples_per_s * ratio
    host = tuple(min(1.0, share * speed / mode.samples_per_s) for share in mode.demand[: len(HOST_RESOURCES)])
    return msgspec.structs.replace(mode, samples_per_s=speed, demand=(*host, *mode.demand[len(HOST_RESOURCES) :]))
