"""What a job demands: at first by its job file and jobs like it, then by what it was seen to use. Pure.

What survives company is measured: the CPU time of a sample, of the workers (c_w) and of all processes (c), and what the
reader can give (r, of one worker). From these follows the speed alone, whatever ran beside it while it was measured:

    samples_per_s(w) = min(w * r, e * min(w * threads / c_w, cores / c))

where e <= 1 is what its processes make of the cores they have (they wait for each other, too), seen while nobody else
needed them. On a GPU, where a sample takes g seconds of it (and m of its memory), it is 1 / g at most.

The demand row is: cores c * samples_per_s / cores of the host, memory bandwidth by the bytes of the rows, GPU
g * samples_per_s, its memory m * samples_per_s, the link to it by the bytes of the rows there and of their gradients
back.
"""

from __future__ import annotations

import msgspec

from elastichost.dispatcher.facts import BUSY, JobSample
from elastichost.tuner.colocation.facts import DEVICE_RESOURCES, HOST_RESOURCES, Mode
from elastichost.tuner.colocation.kinds import Kind, prior_of

__all__ = ["Examined", "HostPower", "Known", "MemoryOfSize", "learnt", "memory_of", "modes_of", "prior"]

# CPU seconds of a sample until it is measured: a fixed part, and one of each id; of a DLRM on a current core (assumed)
SAMPLE_CPU_S, ID_CPU_S = 6e-6, 0.3e-6
LINK_BYTES_PER_S = 12e9  # to a GPU, of PCIe 3.0 x16: the least that is likely (assumed)
LINK_TOUCHES = 2.0  # a row is copied to the GPU, its gradient back
ROW_TOUCHES = 3.0  # a row is read once, and read and written when it is updated
PRIOR_WORTH_S = 1.0  # what was believed counts as if it had been measured for so long
LEAST_EFFICIENCY = 0.2
IDLE = 0.7  # CPU share of a worker below which something else than its computing limits it
MOST_WORKERS = 64
LEAST_MORE = 1.02  # times as fast as with one worker fewer, or it is not worth the memory


class MemoryOfSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimated peak with so many workers, before margins."""

    workers: int
    host_bytes: int
    gpu_bytes: int = 0


class Examined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a job before it runs. least_workers, most_workers: that its file allows; threads: of a worker.
    reader_samples_per_s: what the reader of one worker can give, 0: as fast as it can. row_bytes: of all rows of a
    sample. twin: digest of all that shapes its speed; jobs with the same are one kind of job. memory: by rising
    workers; breakdown: of the first, name and bytes. size_is_open: the dispatcher may choose how many workers."""

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
    """What was measured of a job or its twins. CPU seconds of a sample; reader_samples_per_s: of one worker, when
    something else than its computing held it up, 0: not seen. efficiency: e above. seconds: of measurement. gpu_s,
    gpu_memory_s: g and m above, None: it was not seen on a GPU."""

    worker_cpu_s: float
    all_cpu_s: float
    reader_samples_per_s: float = 0.0
    efficiency: float = 1.0
    seconds: float = 0.0
    gpu_s: float | None = None
    gpu_memory_s: float = 0.0

    @property
    def is_measured(self) -> bool:
        return self.seconds > PRIOR_WORTH_S


class HostPower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cores: int
    memory_bytes_per_s: float


def prior(examined: Examined) -> Known:
    """Before anything like it was seen."""
    cpu_s = SAMPLE_CPU_S + ID_CPU_S * examined.ids_per_sample
    return Known(cpu_s, 1.1 * cpu_s)


def learnt(known: Known, look: JobSample, threads: int, cores: int) -> Known:
    """With one more look at it; one without samples tells nothing. threads: of a worker; cores: of the host."""
    if look.samples <= 0 or look.seconds <= 0:
        return known
    weight = look.seconds / (look.seconds + min(known.seconds, 20.0) + (0.2 if not known.seconds else 0.0))
    worker_cpu_s = _mixed(known.worker_cpu_s, look.worker_cpu_s / look.samples, weight)
    all_cpu_s = _mixed(known.all_cpu_s, look.all_cpu_s / look.samples, weight)
    reader = known.reader_samples_per_s
    is_held_up = look.worker_cpu_s < IDLE * look.seconds * look.workers * threads
    seen = look.samples / look.seconds / max(1, look.workers)
    if is_held_up and not look.is_crowded:
        reader = seen if reader == 0 else _mixed(reader, seen, weight)
    elif reader:
        reader = max(reader, seen)  # it was something else that held it up then
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
    )


def _on_gpu(known: Known, look: JobSample, weight: float) -> tuple[float | None, float]:
    """GPU seconds of a sample, and of its memory."""
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
    """Every number of workers that the job allows and the host can use, fewest first. One more that trains no faster is
    no mode, but for the `current` one."""
    most = min(examined.most_workers, max(examined.least_workers, 2 * host.cores), MOST_WORKERS)
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
    readers = [rate for rate in (examined.reader_samples_per_s, known.reader_samples_per_s) if rate > 0]
    if readers:
        limits.append(workers * min(readers))
    memory = memory_of(examined, workers)
    if memory.gpu_bytes and known.gpu_s:
        limits.append(1 / known.gpu_s)
    speed = min(limits)
    cores = min(1.0, speed * known.all_cpu_s / host.cores)
    bandwidth = min(1.0, speed * ROW_TOUCHES * examined.row_bytes / host.memory_bytes_per_s)
    return Mode(
        workers=workers,
        servers=examined.servers,
        worker_cores=examined.threads,
        samples_per_s=speed,
        demand=(cores, bandwidth, 0.0, *_device(examined, known, speed, bool(memory.gpu_bytes))),
        memory_bytes=memory.host_bytes,
        gpu_memory_bytes=memory.gpu_bytes,
    )


def _device(examined: Examined, known: Known, speed: float, is_gpu: bool) -> tuple[float, ...]:
    """As DEVICE_RESOURCES: of the GPU itself, its memory, the link to it."""
    if not is_gpu:
        return (0.0,) * len(DEVICE_RESOURCES)
    if known.gpu_s is None:
        kind: Kind = "input" if examined.reader_samples_per_s else "balanced"
        return prior_of(kind, 1, 1, is_gpu=True).demand[len(HOST_RESOURCES) :]
    link = LINK_TOUCHES * examined.row_bytes / LINK_BYTES_PER_S
    return tuple(min(1.0, speed * each) for each in (known.gpu_s, known.gpu_memory_s, link))


def memory_of(examined: Examined, workers: int) -> MemoryOfSize:
    """The estimate for so many workers; between two sizes and beyond the last by the difference that a worker makes."""
    known = examined.memory
    for one in known:
        if one.workers == workers:
            return one
    if len(known) == 1:
        return known[0]
    first, last = known[0], known[-1]
    each = (last.host_bytes - first.host_bytes) / max(1, last.workers - first.workers)
    each_gpu = (last.gpu_bytes - first.gpu_bytes) / max(1, last.workers - first.workers)
    more = workers - first.workers
    return MemoryOfSize(workers, int(first.host_bytes + more * each), int(first.gpu_bytes + more * each_gpu))
