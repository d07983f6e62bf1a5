"""The state of one simulated job: exact progress between events, its resources, and its measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.blocks.block_log import BlockHistory, BlockLog, Stretch
from benchmarks.simulator.cluster.episodes import HOT, EpisodeEnd, EpisodeLog
from benchmarks.simulator.cluster.hosts import Placement, ProcessDemand
from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.random_streams import IncidentStream, MeasurementNoise
from benchmarks.simulator.cluster.settings import ClusterSettings
from benchmarks.simulator.cluster.views import JobFacts, JobFaults, JobView
from benchmarks.simulator.queueing.job_speed import IterationSpeed, slowed
from elastichost.tuner.facts import Configuration

__all__ = ["JobRun", "RateRecorder"]

RateRecorder = Callable[[int, float, float, float], None]  # job, from_s, to_s, samples/s in between
MOST_SKEW = 0.95


class JobRun:
    """The state of one job. Times are simulated times in seconds.

    At every event the order is: `settle` the progress until now, change the state, `refresh` the rate.
    """

    def __init__(self, spec: SimulatedJob, settings: ClusterSettings, recorder: RateRecorder | None) -> None:
        self.spec, self.settings, self.recorder = spec, settings, recorder
        self.workload = spec.truth.workload
        self.skew = spec.truth.skew
        windows = max(2, round(settings.block_s / calibration.BLOCK_WINDOW_S))
        most = settings.limits.most
        noise = MeasurementNoise(spec.seed, spec.job, spec.cov, spec.rho, windows)
        self.blocks = BlockLog(noise, self.workload, spec.memory, self._stretch)
        self.incidents = IncidentStream(spec.seed, spec.job, settings.rates, most.workers, most.servers)
        self.facts = JobFacts(
            job=spec.job,
            features=spec.features,
            workload=self.workload,
            request=spec.request,
            requested_memory_bytes=spec.requested_memory_bytes,
            share_cores=spec.share_cores,
            worker_bytes=int(spec.memory.worker_bytes),
            server_bytes=int(spec.memory.server_bytes),
            arrived_s=spec.arrived_s,
        )
        # its resources
        self.configuration: Configuration | None = None
        self.need: ProcessDemand | None = None
        self.placement: Placement = {}
        self.granted_bytes = self.killed_bytes = 0
        self.first: Configuration | None = None
        self.final: Configuration | None = None
        self.started_s: float | None = None
        self.ended_s: float | None = None
        self.outcome: Literal["", "completed", "died"] = ""
        # its speed
        self.speed: IterationSpeed | None = None
        self.rate = self.used_cores = 0.0
        self.changing_until_s = self.paused_until_s = -math.inf
        self.change_share = self.pause_share = 1.0
        self.vary, self.crowding = 1.0, 0.0
        self.stragglers: dict[int, float] = {}  # slot -> time at which it ends without a replacement
        self.hot = 0.0
        self.episodes = EpisodeLog()
        # its progress
        self.trained = self.work = self.rolled_back = 0.0
        self.settled_s = spec.arrived_s
        self.checkpoint_trained, self.checkpoint_s = 0.0, spec.arrived_s
        self.core_s = self.used_core_s = self.memory_byte_s = self.used_byte_s = 0.0
        self.waited_s = self.hot_s = self.straggle_s = 0.0
        self.ooms = self.restarts = self.changes = 0
        self.drops_rows = False  # rows that were unseen for long are dropped, so the memory suffices
        self.replaced_right = self.replaced_wrong = self.moved_right = self.moved_wrong = 0
        # its measurements; block_ends_s: of the present block; inf: none is being measured
        self.block_began_s = self.block_work = 0.0
        self.block_ends_s = math.inf
        self._unchecked: list[tuple[Stretch, int]] = []  # blocks after which a checkpoint may have been written
        # scheduled events: those with an older version are void
        self.end_version = self.block_version = 0
        self.is_block_void = True  # no block is being measured
        self.is_dirty = True

    # --- progress -----------------------------------------------------------------------------------------------------

    def settle(self, now_s: float) -> None:
        """Integrates the progress up to now; the rate has been constant since the last call."""
        seconds = now_s - self.settled_s
        if seconds <= 0:
            return
        self._end_blocks(now_s)
        configuration = self.configuration
        if configuration is None:
            self.waited_s += seconds
            self.settled_s = now_s
            return
        before, done = self.trained, self.rate * seconds
        self.trained = before + done
        if self.trained >= self.episodes.next_samples:
            self.episodes.trained(before, self.trained, self.settled_s, self.rate)
        self.work += done
        self.core_s += configuration.cores * seconds
        self.used_core_s += self.used_cores * seconds
        self.memory_byte_s += self.granted_bytes * seconds
        used_byte_s = self.spec.memory.byte_seconds(before, self.trained, seconds, configuration)
        self.used_byte_s += min(used_byte_s, self.granted_bytes * seconds) if self.drops_rows else used_byte_s
        if self.hot:
            self.hot_s += seconds
        if self.stragglers:
            self.straggle_s += seconds
        if self.recorder is not None:
            self.recorder(self.spec.job, self.settled_s, now_s, self.rate)
        self.settled_s = now_s

    def refresh(self, now_s: float) -> None:
        """Computes the present rate. The progress must be settled before."""
        configuration, speed = self.configuration, self.speed
        self.rate = self.used_cores = 0.0
        if configuration is None or speed is None:
            return
        workload = self.workload
        rate = speed.samples_per_s
        if self.stragglers:
            slow = sum(slot < configuration.workers for slot in self.stragglers)
            rate = slowed(speed, workload, configuration.workers, slow, calibration.STRAGGLER_SPEED)
        rate *= self.vary / (1.0 + self.settings.interference * self.crowding)
        if now_s < self.changing_until_s:
            rate *= self.change_share
        if now_s < self.paused_until_s:
            rate *= self.pause_share
        self.rate = rate
        iterations = rate / workload.batch_size
        workers = configuration.workers if workload.mode == "sync" else 1
        self.used_cores = min(
            configuration.workers * configuration.worker_cores, iterations * workers * speed.worker_cpu_s
        )
        self.used_cores += min(configuration.servers * configuration.server_cores, iterations * speed.server_cpu_s)

    def look_up(self) -> None:
        """Looks up the true speed of the present configuration on its hosts."""
        assert self.configuration is not None
        skew = min(MOST_SKEW, self.skew + self.hot) if self.hot else None
        truth = self.spec.truth
        speeds = self._core_speeds()
        if speeds != (1.0, 1.0):
            truth = truth.on_cores(*speeds)
        self.speed = truth.speed(self.configuration, skew)

    def _core_speeds(self) -> tuple[float, float]:
        """The speeds of the cores of its workers and PS. The slowest PS counts, and the slowest worker; only in async
        mode, where the others do not wait for it, the mean of the workers."""
        hosts = self.settings.hosts
        workers = [(hosts[host].core_speed, count[0]) for host, count in self.placement.items() if count[0]]
        servers = [hosts[host].core_speed for host, count in self.placement.items() if count[1]]
        slowest = min(speed for speed, _ in workers)
        if self.workload.mode == "async" and any(speed != slowest for speed, _ in workers):
            slowest = sum(speed * count for speed, count in workers) / sum(count for _, count in workers)
        return slowest, min(servers)

    def ends_after(self) -> tuple[float, bool]:
        """Returns (seconds, False) until all samples are trained, or (seconds, True) until the memory is used up; inf:
        neither at the present rate."""
        if self.rate <= 0.0 or self.configuration is None:
            return math.inf, False
        full = self.spec.memory.samples_at(self.granted_bytes, self.configuration)
        if full < self.spec.samples and not self.drops_rows:
            return max(0.0, full - self.trained) / self.rate, True
        return max(0.0, self.spec.samples - self.trained) / self.rate, False

    def roll_back(self) -> None:
        """Returns to the last checkpoint; later samples are trained again."""
        self._write_checkpoints()
        self.rolled_back += self.trained - self.checkpoint_trained
        self.trained = self.checkpoint_trained
        self.restarts += 1

    def begin_checkpoints(self, now_s: float) -> None:
        """The next checkpoint is due some time after now_s."""
        self._write_checkpoints()
        self.checkpoint_s = now_s

    def save_checkpoint(self, now_s: float) -> None:
        self.checkpoint_trained, self.checkpoint_s = self.trained, now_s
        self._unchecked.clear()

    def _write_checkpoints(self) -> None:
        """Finds the last of the checkpoints that were written at the ends of blocks."""
        for stretch, count in self._unchecked:
            end_s = stretch.first_end_s
            for _ in range(count):
                if end_s - self.checkpoint_s >= calibration.CHECKPOINT_EVERY_S:
                    self.checkpoint_trained = stretch.trained + stretch.rate * (end_s - stretch.settled_s)
                    self.checkpoint_s = end_s
                end_s += stretch.block_s
        self._unchecked.clear()

    def reload_s(self) -> float:
        """Seconds of a restart from a checkpoint."""
        assert self.configuration is not None
        table_bytes = self.spec.memory.used_bytes(self.trained, self.configuration)
        load_s = calibration.CHECKPOINT_S_PER_GB * table_bytes / 1e9
        return (self.settings.style.stop_s if self.settings.style.stops else calibration.RESTART_S) + load_s

    # --- incidents ----------------------------------------------------------------------------------------------------

    def straggle(self, slot: int, until_s: float, now_s: float) -> None:
        """The worker of this slot becomes a straggler, if the job has one."""
        if self.configuration is not None and slot < self.configuration.workers:
            self.stragglers[slot] = max(until_s, self.stragglers.get(slot, 0.0))
            self.episodes.begin(slot, now_s, self.configuration.workers)

    def recover(self, slot: int, now_s: float, how: EpisodeEnd) -> None:
        del self.stragglers[slot]
        self.episodes.end(slot, now_s, how)

    def heat(self, size: float, now_s: float) -> None:
        """One PS of the job becomes hot."""
        self.hot = size
        self.episodes.begin(HOT, now_s, self.configuration.servers if self.configuration is not None else 0, size)

    def cool(self, now_s: float) -> None:
        self.hot = 0.0
        self.episodes.end(HOT, now_s, "cured")

    def ailment(self) -> JobFaults | None:
        if not self.stragglers and not self.hot:
            return None
        return JobFaults(len(self.stragglers), self.hot)

    # --- measurements -------------------------------------------------------------------------------------------------

    def begin_block(self, now_s: float) -> None:
        """Starts a block, and another at the end of each. The progress must be settled before, and the rate refreshed
        after it."""
        self.block_began_s, self.block_work = now_s, self.work
        self.block_ends_s = now_s + self.settings.block_s
        if self.settings.varies:
            self.vary_speed()

    def void_block(self) -> None:
        """The block that is being measured does not count. The progress must be settled before."""
        self.block_ends_s = math.inf

    def vary_speed(self) -> None:
        """Draws the noise of the true speed in the block that begins."""
        noise = self.blocks.noise
        offset = noise.of_block(self.blocks.count).offset
        self.vary = math.exp(offset - noise.log_error * noise.log_error / 2)

    def _stretch(self) -> Stretch:
        """The state since the progress was settled."""
        configuration, speed = self.configuration, self.speed
        assert configuration is not None and speed is not None
        return Stretch(
            self.block_began_s,
            self.block_ends_s,
            self.settings.block_s,
            self.block_work,
            self.settled_s,
            self.work,
            self.trained,
            self.rate,
            configuration,
            speed,
            min(MOST_SKEW, self.skew + self.hot),
            self.hot,
            bool(self.stragglers) and min(self.stragglers) < configuration.workers,
            self.settings.varies,
        )

    def _end_blocks(self, now_s: float) -> None:
        """Ends the blocks of the present stretch. The rate has been constant since the progress was settled."""
        end_s, block_s = self.block_ends_s, self.settings.block_s
        if end_s > now_s:
            return
        stretch, count = self._stretch(), 0
        while end_s <= now_s:
            self.block_began_s = end_s
            end_s += block_s
            count += 1
        self.block_work = self.work + self.rate * (self.block_began_s - self.settled_s)
        self.block_ends_s = end_s
        self.blocks.add(stretch, count)
        self._unchecked.append((stretch, count))

    def as_seen(self, now_s: float) -> JobView:
        """Makes a new view of the job."""
        trained = self.trained + self.rate * (now_s - self.settled_s)
        self.is_dirty = False
        return JobView(
            self.facts,
            BlockHistory(self.blocks, self._blocks_until(now_s)),
            self.configuration,
            self.granted_bytes,
            self.started_s,
            now_s,
            max(0.0, self.spec.samples - trained),
            self.is_changing(now_s),
            self.ooms,
            self.restarts,
        )

    def _blocks_until(self, now_s: float) -> int:
        count, end_s = self.blocks.count, self.block_ends_s
        while end_s <= now_s:
            count, end_s = count + 1, end_s + self.settings.block_s
        return count

    def is_changing(self, now_s: float) -> bool:
        return now_s < self.changing_until_s

    def stands_still(self, now_s: float) -> bool:
        return now_s < self.paused_until_s and self.pause_share == 0.0
