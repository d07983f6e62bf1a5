"""The state of one simulated job: exact progress between events, its resources, and its measurements.

Its numbers are a row of `progress.columns`, so that compiled code advances the rows of many jobs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.blocks.block_log import BlockHistory, BlockLog, BlockState, Stretch
from benchmarks.simulator.cluster.episodes import HOT, EpisodeEnd, EpisodeLog
from benchmarks.simulator.cluster.hosts import Placement, ProcessDemand
from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.progress import columns, kernel
from benchmarks.simulator.cluster.progress.columns import Column, Floats, JobColumns
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

    At every event the order is: `settle` the progress until now, change the state, `refresh` the rate. index: of its
    row among those of all jobs; -1 before `join`.
    """

    settled_s = Column(columns.SETTLED_S)
    rate = Column(columns.RATE)
    trained = Column(columns.TRAINED)
    work = Column(columns.WORK)
    waited_s = Column(columns.WAITED_S)
    core_s = Column(columns.CORE_S)
    used_core_s = Column(columns.USED_CORE_S)
    memory_byte_s = Column(columns.MEMORY_BYTE_S)
    used_byte_s = Column(columns.USED_BYTE_S)
    hot_s = Column(columns.HOT_S)
    straggle_s = Column(columns.STRAGGLE_S)
    block_began_s = Column(columns.BLOCK_BEGAN_S)
    block_work = Column(columns.BLOCK_WORK)
    block_ends_s = Column(columns.BLOCK_ENDS_S)  # of the present block; inf: none is being measured

    def __init__(self, spec: SimulatedJob, settings: ClusterSettings, recorder: RateRecorder | None) -> None:
        self.spec, self.settings, self.recorder = spec, settings, recorder
        self.row, self.index = _first_row(spec), -1
        self._saved = np.zeros(kernel.SAVED)
        self._state: BlockState | None = None  # of the present stretch; None: not known yet
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
        self._speeds: dict[tuple[Configuration, float | None, tuple[float, float]], IterationSpeed] = {}
        self.changing_until_s = self.paused_until_s = -math.inf
        self.change_share = self.pause_share = 1.0
        self.vary = 1.0
        self.stragglers: dict[int, float] = {}  # slot -> time at which it ends without a replacement
        self.hot = 0.0
        self.episodes = EpisodeLog()
        # its progress
        self.rolled_back = 0.0
        self.checkpoint_trained, self.checkpoint_s = 0.0, spec.arrived_s
        self.ooms = self.restarts = self.changes = 0
        self.replaced_right = self.replaced_wrong = self.moved_right = self.moved_wrong = 0
        # its measurements
        self._unchecked: list[tuple[Stretch, int]] = []  # blocks after which a checkpoint may have been written
        # scheduled events: those with an older version are void
        self.event_version = self.block_version = 0
        self.is_block_void = True  # no block is being measured
        self.is_dirty = True

    # --- progress -----------------------------------------------------------------------------------------------------

    def join(self, all_columns: JobColumns) -> None:
        """Its row becomes one of all jobs, which are advanced together."""
        self.index = all_columns.take(self.spec.job, self.row)
        self.row = all_columns.rows[self.index]

    def leave(self, all_columns: JobColumns) -> None:
        """Frees its row; its numbers stay."""
        self.row = self.row.copy()
        all_columns.free(self.index)
        self.index = -1

    def settle(self, now_s: float) -> None:
        """Integrates the progress up to now; the rate has been constant since the last call."""
        if now_s <= self.settled_s:
            return
        blocks = kernel.settle(self.row, now_s, self.settings.block_s, self._saved)
        saved = self._saved.tolist()
        if blocks:
            self.end_blocks(saved, blocks)
        if self.configuration is not None:
            self.note_progress(saved, now_s)

    def note_progress(self, saved: Sequence[float], now_s: float) -> None:
        """Judges increases of memory, and calls the recorder, after the row was settled. saved: its state before, as
        `kernel.settle` saves it."""
        _, _, _, settled_s, _, before, rate = saved
        trained = self.trained
        if trained >= self.episodes.next_samples:
            self.episodes.trained(before, trained, settled_s, rate)
            self.row[columns.NEXT_SAMPLES] = self.episodes.next_samples
        if self.recorder is not None:
            self.recorder(self.spec.job, settled_s, now_s, rate)

    def refresh(self, now_s: float) -> None:
        """Computes the present rate. The progress must be settled before."""
        self._renew_row()
        kernel.refresh(self.row, now_s, self.settings.interference)

    def _renew_row(self) -> None:
        """Writes into the row what the speed and the end of the job follow from."""
        configuration, speed = self.configuration, self.speed
        self._state = None
        if configuration is None or speed is None:
            self.row[columns.CORES] = self.row[columns.SPEED] = 0.0
            return
        workload, memory = self.workload, self.spec.memory
        rate = speed.samples_per_s
        if self.stragglers:
            slow = sum(slot < configuration.workers for slot in self.stragglers)
            rate = slowed(speed, workload, configuration.workers, slow, calibration.STRAGGLER_SPEED)
        self.row[columns.FIRST_PARAMETER :] = (
            configuration.cores,
            self.granted_bytes,
            memory.constant_bytes(configuration),
            memory.samples_at(self.granted_bytes, configuration),
            self.episodes.next_samples,
            self.hot != 0.0,
            bool(self.stragglers),
            rate,
            self.vary,
            self.changing_until_s,
            self.change_share,
            self.paused_until_s,
            self.pause_share,
            workload.batch_size,
            configuration.workers if workload.mode == "sync" else 1,
            speed.worker_cpu_s,
            speed.server_cpu_s,
            configuration.workers * configuration.worker_cores,
            configuration.servers * configuration.server_cores,
        )

    @property
    def drops_rows(self) -> bool:
        """Rows that were unseen for long are dropped, so the memory suffices."""
        return bool(self.row[columns.DROPS_ROWS])

    def drop_rows(self) -> None:
        self.row[columns.DROPS_ROWS] = 1.0

    def look_up(self) -> None:
        """Looks up the true speed of the present configuration on its hosts."""
        assert self.configuration is not None
        skew = min(MOST_SKEW, self.skew + self.hot) if self.hot else None
        key = self.configuration, skew, self._core_speeds()
        if key not in self._speeds:
            truth = self.spec.truth if key[2] == (1.0, 1.0) else self.spec.truth.on_cores(*key[2])
            self._speeds[key] = truth.speed(self.configuration, skew)
        self.speed = self._speeds[key]

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

    def ends_after(self) -> float:
        """Seconds until all samples are trained or the memory is used up; inf: neither at the present rate."""
        return kernel.ends_after(self.row)

    def ends_for_memory(self) -> bool:
        """Whether the job uses up its memory before all samples are trained."""
        if self.configuration is None or self.drops_rows:
            return False
        return self.spec.memory.samples_at(self.granted_bytes, self.configuration) < self.spec.samples

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
                end_s += stretch.state.block_s
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
        return Stretch(
            self._present(),
            self.block_began_s,
            self.block_ends_s,
            self.block_work,
            self.settled_s,
            self.work,
            self.trained,
            self.rate,
        )

    def _present(self) -> BlockState:
        """What stays the same in the blocks of the present stretch."""
        if self._state is None:
            configuration, speed = self.configuration, self.speed
            assert configuration is not None and speed is not None
            self._state = BlockState(
                self.settings.block_s,
                configuration,
                speed,
                min(MOST_SKEW, self.skew + self.hot),
                self.hot,
                bool(self.stragglers) and min(self.stragglers) < configuration.workers,
                self.settings.varies,
            )
        return self._state

    def end_blocks(self, saved: Sequence[float], count: int) -> None:
        """Records `count` blocks of the stretch with this state before it was settled, as `kernel.settle` saves it."""
        stretch = Stretch(self._state or self._present(), *saved)
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

    def resumes_s(self, now_s: float) -> float:
        """The time at which the first of its change and its pause ends; inf: neither."""
        return min((at_s for at_s in (self.changing_until_s, self.paused_until_s) if at_s > now_s), default=math.inf)

    def is_changing(self, now_s: float) -> bool:
        return now_s < self.changing_until_s

    def stands_still(self, now_s: float) -> bool:
        return now_s < self.paused_until_s and self.pause_share == 0.0


def _first_row(spec: SimulatedJob) -> Floats:
    row, memory = columns.new_row(spec.arrived_s), spec.memory
    row[columns.SAMPLES], row[columns.CURVE_SAMPLES] = spec.samples, memory.samples
    row[columns.GROWTH_BYTES], row[columns.BETA] = memory.growth_bytes, memory.beta
    return row
