"""The measurements of a job, block by block. Blocks and observations are computed on access, because most policies use
few.

Between two changes of a job its speed is constant, so its blocks follow from the state at the first change: `Stretch`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Generic, NamedTuple, TypeVar, overload

import msgspec

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.cluster.random_streams import BlockNoise, MeasurementNoise
from benchmarks.simulator.cluster.views import MemorySample, ServerLoads
from benchmarks.simulator.queueing.job_speed import IterationSpeed
from elastichost.tuner.facts import Configuration, Observation, Workload

__all__ = ["BlockHistory", "BlockLog", "BlockState", "MeasuredBlock", "Stretch"]

T = TypeVar("T")
NORMAL = NormalDist()
UNIFORM_FLOOR = 1e-12
BUCKETS = 4  # of each PS with an even load, and as many of what a hot PS has in addition
WORKER_ERROR, MOST_AVERAGED = 0.1, 4  # speeds of workers are averaged over up to 4 blocks, to reach this log error


class MeasuredBlock(NamedTuple):
    """The true values of one block. skew: of the work on rows. hot: the part of it that can move to another PS.
    has_straggler: a worker was a straggler at its end.
    varies: the noise is already in the true speed."""

    at_s: float
    seconds: float
    work: float
    trained: float
    configuration: Configuration
    speed: IterationSpeed
    skew: float
    hot: float
    has_straggler: bool
    varies: bool


class BlockState(NamedTuple):
    """What all blocks of a stretch have in common, as in `MeasuredBlock`. block_s: length of a block in seconds."""

    block_s: float
    configuration: Configuration
    speed: IterationSpeed
    skew: float
    hot: float
    has_straggler: bool
    varies: bool


class Stretch(NamedTuple):
    """The state of a job that does not change, while blocks are measured. began_s: of the first block; block_work: work
    done until then. settled_s: time at which `work` and `trained` were exact; rate: samples/s since then."""

    state: BlockState
    began_s: float
    first_end_s: float
    block_work: float
    settled_s: float
    work: float
    trained: float
    rate: float


class BlockLog:
    """All blocks of a job, and the observations of them. count: number of blocks of all stretches that are over."""

    def __init__(
        self, noise: MeasurementNoise, workload: Workload, memory: MemoryCurve, present: Callable[[], Stretch]
    ) -> None:
        """present: returns the stretch that is not over; it is called if one of its blocks is read."""
        self.noise = noise
        self.count = 0
        self._present = present
        self._over: deque[tuple[Stretch, int]] = deque()  # later than all computed blocks; with the number of blocks
        self._blocks: list[MeasuredBlock] = []
        self._observations: list[Observation] = []
        self._begun = 0  # computed blocks of the first stretch in _over, or of the open one
        self._workload, self._memory = workload, memory

    def add(self, stretch: Stretch, blocks: int) -> None:
        """Adds a stretch that is over, with this number of blocks (at least 1)."""
        self._over.append((stretch, blocks))
        self.count += blocks

    def block(self, index: int) -> MeasuredBlock:
        """The block of an index; the caller knows that it has ended."""
        blocks = self._blocks
        while index >= len(blocks):
            wanted = index + 1 - len(blocks) + self._begun
            stretch, count = self._over[0] if self._over else (self._present(), wanted)
            wanted = min(count, wanted)
            self._compute(stretch, wanted)
            if self._over and wanted == count:
                self._over.popleft()
                self._begun = 0
        return blocks[index]

    def _compute(self, stretch: Stretch, until: int) -> None:
        """Computes the blocks of a stretch from the first missing one up to the number `until`."""
        state, block_s = stretch.state, stretch.state.block_s
        began_s, end_s, before = stretch.began_s, stretch.first_end_s, stretch.block_work
        if self._begun:
            began_s = self._blocks[-1].at_s
            end_s = began_s + block_s
            before = stretch.work + stretch.rate * (began_s - stretch.settled_s)
        for _ in range(self._begun, until):
            done = stretch.rate * (end_s - stretch.settled_s)
            work = stretch.work + done
            self._blocks.append(
                MeasuredBlock(
                    end_s,
                    end_s - began_s,
                    work - before,
                    stretch.trained + done,
                    state.configuration,
                    state.speed,
                    state.skew,
                    state.hot,
                    state.has_straggler,
                    state.varies,
                )
            )
            began_s, before, end_s = end_s, work, end_s + block_s
        self._begun = until

    def observation(self, index: int) -> Observation:
        while index >= len(self._observations):
            number = len(self._observations)
            self._observations.append(self._observe(self.block(number), self.noise.of_block(number)))
        return self._observations[index]

    def memory(self, index: int) -> MemorySample:
        block = self.block(index)
        used = self._memory.used_bytes(block.trained, block.configuration)
        return MemorySample(block.at_s, block.trained, used)

    def slowest(self, index: int) -> float:
        """The measured speed of the slowest worker / its usual value, as in `views.MeasurementHistory`.

        The speed of each worker is measured with the noise of the block, averaged over some blocks of the same
        configuration. So the slowest of w healthy workers is the least of w normal values, z with
        Phi(z) = 1 - (1 - u)^(1 / w), u uniform; its mean is about -Phi^-1((w - 3/8) / (w + 1/4)) (Blom 1958)."""
        configuration = self.block(index).configuration
        workers = configuration.workers
        if workers < 2:
            return 1.0
        averaged = self._averaged(index)
        count = len(averaged)
        error = self.noise.log_error / math.sqrt(count)
        draws = (NORMAL.inv_cdf(max(self.noise.of_block(at).uniform, UNIFORM_FLOOR)) for at in averaged)
        uniform = NORMAL.cdf(sum(draws) / math.sqrt(count))
        least = -math.expm1(math.log1p(-min(uniform, 1 - UNIFORM_FLOOR)) / workers)
        slowest = error * NORMAL.inv_cdf(max(least, UNIFORM_FLOOR))
        if self.block(index).has_straggler:
            ill = (at for at in averaged if self.block(at).has_straggler)
            slowest = min(
                slowest,
                sum(math.log(calibration.STRAGGLER_SPEED) + self.noise.of_block(at).offset for at in ill) / count,
            )
        usual = -error * NORMAL.inv_cdf((workers - 0.375) / (workers + 0.25))
        return math.exp(slowest - usual)

    def loads(self, index: int) -> ServerLoads:
        """The measured load of the PS. The first PS has what is hot in addition to its even share."""
        block, noise = self.block(index), self.noise.of_block(index)
        servers = block.configuration.servers
        hot = min(1.0, block.hot * noise.direct[6])
        even, owners = (1.0 - hot) / (servers * BUCKETS), dict[tuple[int, int], int]()
        heat = dict[tuple[int, int], float]()
        for server in range(servers):
            for number in range(BUCKETS):
                key = server, number
                owners[key], heat[key] = server, even
        for number in range(BUCKETS) if block.hot > 0 else ():
            key = servers, number
            owners[key], heat[key] = 0, hot / BUCKETS
        seen = self.observation(index)
        share = seen.hot_share or 1.0 / servers
        iterations_per_s = seen.samples_per_s / self._workload.batch_size
        busiest = iterations_per_s * (seen.server_cpu_s or 0.0) * share / block.configuration.server_cores
        return ServerLoads(heat, owners, min(1.0, busiest))

    def _averaged(self, index: int) -> range:
        """The last blocks of the same configuration, as many as WORKER_ERROR requires, up to MOST_AVERAGED."""
        wanted = math.ceil((self.noise.log_error / WORKER_ERROR) ** 2)
        first, configuration = index, self.block(index).configuration
        while (
            index + 1 - first < min(wanted, MOST_AVERAGED)
            and first > 0
            and self.block(first - 1).configuration == configuration
        ):
            first -= 1
        return range(first, index + 1)

    def _observe(self, block: MeasuredBlock, noise: BlockNoise) -> Observation:
        rate = block.work / block.seconds * (1.0 if block.varies else math.exp(noise.offset))
        speed, direct, servers = block.speed, noise.direct, block.configuration.servers
        hot_share = (block.skew + (1.0 - block.skew) / servers) * direct[6]
        return Observation(
            configuration=block.configuration,
            samples_per_s=rate,
            log_error=noise.log_error,
            seconds=block.seconds,
            iterations=int(block.work / self._workload.batch_size),
            at_s=block.at_s,
            hot_share=min(1.0, max(1.0 / servers, hot_share)),
            compute_s=speed.compute_s * direct[0],
            reader_s=speed.reader_s * direct[1] if speed.reader_s else None,
            exchange_s=speed.exchange_s * direct[2],
            server_cpu_s=speed.server_cpu_s * direct[3],
            worker_cpu_s=speed.worker_cpu_s * direct[4],
            bytes_moved=speed.bytes_moved * direct[5],
        )


class _Rows(Sequence[T], Generic[T]):
    """The first `count` elements of a growing sequence; each is computed on access."""

    __slots__ = ("_count", "_make")

    def __init__(self, make: Callable[[int], T], count: int) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple([self._make(place) for place in range(*index.indices(self._count))])
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(f"block {index} of {self._count}")
        return self._make(place)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._count))


class BlockHistory(msgspec.Struct, frozen=True, gc=False):
    """Implements `views.MeasurementHistory` for the first `count` blocks of a job; later blocks do not appear in it."""

    blocks: BlockLog
    count: int

    @property
    def observations(self) -> Sequence[Observation]:
        return _Rows(self.blocks.observation, self.count)

    @property
    def memory(self) -> Sequence[MemorySample]:
        return _Rows(self.blocks.memory, self.count)

    @property
    def slowest(self) -> Sequence[float]:
        return _Rows(self.blocks.slowest, self.count)

    @property
    def loads(self) -> Sequence[ServerLoads]:
        return _Rows(self.blocks.loads, self.count)
