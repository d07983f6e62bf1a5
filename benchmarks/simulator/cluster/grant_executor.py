"""Carries out grants: places processes, starts and ends changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import msgspec

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.crowding import Crowding
from benchmarks.simulator.cluster.episodes import ROOM_BYTES
from benchmarks.simulator.cluster.hosts import Cluster, Placement, ProcessDemand
from benchmarks.simulator.cluster.job_run import JobRun
from benchmarks.simulator.cluster.settings import ClusterSettings, move_cost, moved_share
from benchmarks.simulator.cluster.views import Grant
from elastichost.tuner.facts import Configuration

__all__ = ["BEGIN", "CANCEL", "KEEP", "GrantExecutor", "Reschedule"]

KEEP, BEGIN, CANCEL = range(3)  # the action on the block that is being measured


class Reschedule(Protocol):
    def __call__(self, run: JobRun, now_s: float, block: int = KEEP) -> None:
        """Schedules the next events of a job after a change of its rate, its end or its measurement."""
        ...


class GrantExecutor:
    """Places and releases all processes. allocated_cores: of all jobs. refused: number of grants that were refused."""

    def __init__(self, cluster: Cluster, crowding: Crowding, settings: ClusterSettings, reschedule: Reschedule) -> None:
        self._cluster, self._crowding = cluster, crowding
        self._settings, self._reschedule = settings, reschedule
        self.allocated_cores = 0
        self.refused = 0

    def carry_out(self, grants: Mapping[int, Grant | None], runs: Mapping[int, JobRun], now_s: float) -> None:
        """Carries out grants, those that free resources first. Raises ValueError for a grant beyond the limits of a
        job, and for an unknown job."""
        asked = []
        for job, grant in grants.items():
            if grant is None:
                continue
            if job not in runs:
                raise ValueError(f"the policy granted resources to the unknown job {job}")
            self._check(job, grant)
            asked.append((runs[job], grant))
        asked.sort(key=lambda pair: not _frees(*pair))
        touched: set[int] = set()
        for run, grant in asked:
            before = run.placement
            if grant.drops_rows:
                run.drop_rows()
            if run.configuration is None:
                self._start(run, grant, now_s)
            elif not _is_same(run, grant):
                self._change(run, grant, now_s)
            if run.placement is not before:
                touched |= before.keys() | run.placement.keys()
        self._crowding.update(touched, runs, now_s)

    def _check(self, job: int, grant: Grant) -> None:
        row, least, most = (
            _row(one) for one in (grant.configuration, self._settings.limits.least, self._settings.limits.most)
        )
        if any(not low <= value <= high for low, value, high in zip(least, row, most, strict=True)):
            raise ValueError(f"job {job}: {grant.configuration} is outside the limits of a job")
        if grant.memory_bytes <= 0:
            raise ValueError(f"job {job}: memory_bytes={grant.memory_bytes} must be positive")

    def _start(self, run: JobRun, grant: Grant, now_s: float) -> None:
        need = ProcessDemand.of(grant.configuration, grant.memory_bytes, int(run.spec.memory.worker_bytes))
        placement = self._cluster.place(run.spec.job, need)
        if placement is None:
            self.refused += 1
            return
        run.settle(now_s)
        self._hold(run, grant.configuration, grant.memory_bytes, need, placement)
        run.first = run.first or grant.configuration
        run.started_s = now_s if run.started_s is None else run.started_s
        run.begin_checkpoints(now_s)
        run.look_up()
        run.pause_share, run.paused_until_s = 0.0, now_s + (run.reload_s() if run.restarts else calibration.RESTART_S)
        run.changing_until_s = -math.inf
        self._reschedule(run, now_s, CANCEL)

    def _change(self, run: JobRun, grant: Grant, now_s: float) -> None:
        old, need, before = run.configuration, run.need, run.placement
        assert old is not None and need is not None
        if run.is_changing(now_s):
            self.refused += 1
            return
        new_need = ProcessDemand.of(grant.configuration, grant.memory_bytes, int(run.spec.memory.worker_bytes))
        placement = self._cluster.move(run.spec.job, need, before, new_need)
        while placement is None and grant.configuration.workers > old.workers:
            # the job gets as many of the new workers as fit; the others are not started
            fewer = msgspec.structs.replace(grant.configuration, workers=grant.configuration.workers - 1)
            grant = msgspec.structs.replace(grant, configuration=fewer)
            new_need = ProcessDemand.of(fewer, grant.memory_bytes, int(run.spec.memory.worker_bytes))
            placement = self._cluster.move(run.spec.job, need, before, new_need)
        if placement is None:
            self.refused += 1
            if grant.configuration != old and grant.memory_bytes > run.granted_bytes:
                self._change(run, Grant(old, grant.memory_bytes), now_s)  # only the memory, if it fits
            return
        run.settle(now_s)
        self._note_room(run, old, grant, now_s)
        self.allocated_cores -= old.cores
        self._hold(run, grant.configuration, grant.memory_bytes, new_need, placement)
        if grant.configuration == old and placement == before and not (grant.replace_straggler or grant.move_buckets):
            self._reschedule(run, now_s)  # only the memory changed
            return
        tables = run.spec.memory.used_bytes(run.trained, old) - old.workers * run.spec.memory.worker_bytes
        share = moved_share(before, placement)
        style = self._settings.style
        if grant.move_buckets:
            share += self._move_buckets(run, now_s)
            style = self._settings.bucket_style or style
        seconds, kept = move_cost(style, old, grant.configuration, share * tables)
        if grant.replace_straggler:
            seconds = max(seconds, calibration.JOIN_S)
            _replace(run, now_s)
        if grant.configuration != old:
            run.changes += 1
            is_new = grant.configuration.worker_cores != old.worker_cores  # all workers
            for slot in [slot for slot in run.stragglers if is_new or slot >= grant.configuration.workers]:
                run.recover(slot, now_s, "left")
            run.episodes.resized(grant.configuration.workers, grant.configuration.servers)
        if style.stops:
            run.save_checkpoint(now_s)
        run.changing_until_s, run.change_share = now_s + seconds, kept
        self._reschedule(run, now_s, CANCEL)

    def _note_room(self, run: JobRun, old: Configuration, grant: Grant, now_s: float) -> None:
        """Records an increase of the memory for rows, to judge later whether it was needed. An increase after a kill is
        not recorded, because its need is known."""
        memory = run.spec.memory
        if run.granted_bytes == run.killed_bytes:
            return
        private = memory.constant_bytes(grant.configuration) - memory.constant_bytes(old)
        if grant.memory_bytes > run.granted_bytes + max(0.0, private) + ROOM_BYTES:
            rows = memory.used_bytes(run.trained, old) - old.workers * memory.worker_bytes
            seconds = move_cost(self._settings.style, old, old, rows)[0]
            run.episodes.more_room(now_s, memory.samples_at(run.granted_bytes, old), seconds)

    def _move_buckets(self, run: JobRun, now_s: float) -> float:
        """Moves buckets, and returns the share of the rows that move. The speed changes only at the end of the move."""
        right = run.hot > 0
        run.moved_right, run.moved_wrong = run.moved_right + right, run.moved_wrong + (not right)
        share = run.hot
        run.cool(now_s)
        return share

    def _hold(
        self, run: JobRun, configuration: Configuration, memory_bytes: int, need: ProcessDemand, placement: Placement
    ) -> None:
        run.configuration, run.granted_bytes = configuration, memory_bytes
        run.need, run.placement, run.is_dirty = need, placement, True
        self._crowding.place(run)
        self.allocated_cores += configuration.cores

    def conclude(self, run: JobRun, now_s: float) -> bool:
        """Ends a change or a pause that is due. True: one has ended, and a new block must begin."""
        is_over = False
        if run.changing_until_s > -math.inf and now_s >= run.changing_until_s:
            run.changing_until_s = -math.inf
            run.look_up()
            is_over = True
        if run.paused_until_s > -math.inf and now_s >= run.paused_until_s:
            is_over = is_over or run.is_block_void
            run.paused_until_s, run.pause_share = -math.inf, 1.0
        return is_over and not run.is_changing(now_s) and not run.stands_still(now_s)

    def release(self, run: JobRun, runs: Mapping[int, JobRun], now_s: float) -> None:
        """Releases the processes of a job that has ended or must wait again."""
        configuration, need = run.configuration, run.need
        assert configuration is not None and need is not None
        hosts = run.placement.keys()
        self._cluster.release(run.spec.job, need, run.placement)
        self.allocated_cores -= configuration.cores
        run.configuration, run.need, run.placement, run.granted_bytes = None, None, {}, 0
        self._crowding.place(run)
        for slot in tuple(run.stragglers):
            run.recover(slot, now_s, "left")
        run.speed, run.is_dirty = None, True
        run.changing_until_s = run.paused_until_s = -math.inf
        self._reschedule(run, now_s, CANCEL)
        self._crowding.update(hosts, runs, now_s)

    def settle_elsewhere(self, run: JobRun, runs: Mapping[int, JobRun], now_s: float) -> bool:
        """Places the processes of a lost host on other hosts. False: they do not fit, and the job waits again."""
        need = run.need
        assert need is not None
        placement = self._cluster.move(run.spec.job, need, run.placement, need)
        if placement is None:
            self.release(run, runs, now_s)
            return False
        run.placement = placement
        self._crowding.place(run)
        if not run.is_changing(now_s):
            run.look_up()  # the cores of the other hosts may have another speed
        self._crowding.update(placement.keys(), runs, now_s)
        return True


def _replace(run: JobRun, now_s: float) -> None:
    """Replaces the slowest worker; a straggler if there is one."""
    present = [slot for slot in sorted(run.stragglers) if run.configuration and slot < run.configuration.workers]
    if present:
        run.recover(present[0], now_s, "cured")
        run.replaced_right += 1
    else:
        run.replaced_wrong += 1


def _frees(run: JobRun, grant: Grant) -> bool:
    now = run.configuration
    return now is not None and grant.configuration.cores <= now.cores and grant.memory_bytes <= run.granted_bytes


def _is_same(run: JobRun, grant: Grant) -> bool:
    acts = grant.replace_straggler or grant.move_buckets
    return not acts and grant.configuration == run.configuration and grant.memory_bytes == run.granted_bytes


def _row(configuration: Configuration) -> tuple[int, int, int, int]:
    c = configuration
    return c.workers, c.servers, c.worker_cores, c.server_cores
