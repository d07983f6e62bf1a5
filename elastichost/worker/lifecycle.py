"""The lifecycle that all workers share: start, control messages, pauses, changes of cores, heartbeats, stop.

    Hello -> build -> (first shard map) -> fetch the dense vector -> Ready -> turns -> Stop

One turn: read control messages; change cores if the supervisor requested it (Repin); poll the commit strategy; then
either stand still (pause or drain) or do one piece of work, at most one batch. Pause, drain and Repin take effect at
a batch boundary only. Before the worker answers Paused or Drained, everything that it has trained is committed and
reported. It goes on sending heartbeats while it stands still and wherever it waits. A kill at any point needs no
clean-up by the worker: the supervisor fences the incarnation, and the dense owner's applied record settles its leases.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np

from elastichost.config.job import JobSpec
from elastichost.datasets.sources.control import InputControl
from elastichost.errors import ProtocolError
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    ControlMessage,
    DrainedMsg,
    DrainMsg,
    HeartbeatMsg,
    HelloMsg,
    InputKnobsMsg,
    MembershipMsg,
    PausedMsg,
    PauseMsg,
    ProceedMsg,
    ReadyMsg,
    RepinMsg,
    RepinnedMsg,
    ShardMapUpdateMsg,
    StopMsg,
)
from elastichost.wire.facts import HEARTBEAT_S, WAITS_FOR_SOURCE, StageSample
from elastichost.wire.sockets import Caller, ControlClient, wait_readable
from elastichost.worker.channels.channel import DirectoryHolder, StoppedError
from elastichost.worker.channels.exchange import PauseGate
from elastichost.worker.channels.routing import Directory
from elastichost.worker.commit.strategy import CommitStrategy
from elastichost.worker.meter import StepMeter
from elastichost.worker.source_requests import PatientRequests

__all__ = ["IDLE_S", "WorkerLifecycle"]

IDLE_S = 0.05
Strategy = TypeVar("Strategy", bound=CommitStrategy)


class WorkerLifecycle(ABC, Generic[Strategy]):
    """One worker incarnation, from Hello to Stop. A subclass defines the work and the commit strategy."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        self._arguments = arguments
        self._job = job
        self._process = arguments.process
        self._holder = DirectoryHolder(Caller(arguments.job_id, self._process, arguments.host, arguments.keys))
        self.control = ControlClient(
            arguments.control_address, arguments.job_id, self._process, arguments.to_supervisor
        )
        self._strategy: Strategy | None = None
        self._pause = PauseGate()
        self._repin: RepinMsg | None = None
        self._draining = False
        self._drained = False
        self._running = True
        self._progress = 0
        self._beat_at_s = 0.0
        self._state = "starting"
        self._meter = StepMeter(time.monotonic())
        self._waiting = PatientRequests(job.data.input, self.control.send, self._pump_or_stop)

    # --- what a subclass defines ------------------------------------------------------------------------------

    @abstractmethod
    def _build(self) -> Strategy:
        """Makes everything that training needs. Raises typed errors, and StoppedError when Stop comes meanwhile."""

    @abstractmethod
    def _open(self, strategy: Strategy) -> None:
        """Starts the reader. Called once, when there is a shard map and the model has the dense vector."""

    @abstractmethod
    def _work(self, strategy: Strategy) -> None:
        """One piece of work: at most one batch."""

    @abstractmethod
    def _come_to_rest(self, strategy: Strategy) -> None:
        """Returns when everything trained is committed and reported, and no peer waits for this worker."""

    @abstractmethod
    def _discard(self) -> None:
        """Drops the batches that were read ahead."""

    @abstractmethod
    def _move(self, asked: RepinMsg) -> None:
        """Moves the process to other cores and changes the number of threads. Called at a batch boundary."""

    @abstractmethod
    def _take_traffic(self) -> tuple[int, int, int]:
        """(bytes sent, bytes received since the last call, bytes held on the GPU)."""

    @abstractmethod
    def _take_read_s(self) -> float:
        """Seconds spent reading since the last call."""

    def _take_stages(self) -> tuple[StageSample, ...]:
        """What each stage of the input did since the last call; (): there is no such input."""
        return ()

    @property
    def _input(self) -> InputControl | None:
        """The knobs of the input; None: it is not built yet, or has none."""
        return None

    @abstractmethod
    def _close_parts(self) -> None:
        """Closes what `_build` and `_open` made, except the strategy."""

    def _poll(self, strategy: Strategy) -> None:
        """Called at every batch boundary, also while the worker stands still. Never blocks."""

    def _takes(self, message: ControlMessage) -> bool:
        """Handles a message that only the subclass understands. False: it does not understand it."""
        return False

    def _report_progress(self) -> None:
        """Sends the supervisor the commits since the last call."""

    # --- from Hello to Stop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns after Stop. Raises typed errors, which `main` reports."""
        a = self._arguments
        self.control.send(HelloMsg(a.role, a.index, a.incarnation, pid=os.getpid()))
        try:
            strategy = self._strategy = self._build()
        except StoppedError:  # it waited for its source
            return
        while self._holder.epoch == 0 and self._running:
            wait_readable([self.control.socket], IDLE_S)
            self._pump()
        if not self._running:
            return
        with contextlib.suppress(StoppedError):
            strategy.fetch()
            self._open(strategy)
            self.control.send(ReadyMsg(shard_map_epoch=self._holder.epoch))
            while self._running:
                self._turn(strategy)

    def close(self) -> None:
        """Ends threads and closes sockets. Queued control messages have 1 s to leave."""
        self._holder.stop()
        self._close_parts()
        if self._strategy is not None:
            self._strategy.close()
        self.control.flush(1.0)

    def _turn(self, strategy: Strategy) -> None:
        self._pump()
        self._change_cores()
        self._poll(strategy)
        if self._pause.asked is not None or self._draining:
            self._stand_still(strategy)
        else:
            self._work(strategy)

    def _change_cores(self) -> None:
        """Performs a requested Repin. At a batch boundary only: torch's thread count must not change in a batch."""
        if self._repin is None:
            return
        asked, self._repin = self._repin, None
        self._move(asked)
        self.control.send(RepinnedMsg(asked.cores))

    def _stand_still(self, strategy: Strategy) -> None:
        """Pause and drain, at a batch boundary: commits and reports everything, then answers Paused or Drained."""
        if self._draining and not self._drained:
            self._discard()
            self._come_to_rest(strategy)
            self._drained = True
            self.control.send(DrainedMsg())
        elif (cut := self._pause.due()) is not None:
            self._come_to_rest(strategy)
            if self._pause.answer(cut):
                self.control.send(PausedMsg(cut=cut))
        self._state = "drained" if self._drained else "paused"
        wait_readable([self.control.socket], IDLE_S)

    # --- control --------------------------------------------------------------------------------------------

    def _pump(self, timeout_s: float = 0.0) -> None:
        """Reads all control messages and sends a heartbeat when it is due; called wherever the loop waits."""
        if timeout_s > 0:
            wait_readable([self.control.socket], timeout_s)
        while (envelope := self.control.receive()) is not None:
            self._handle(envelope)
        self._beat()

    def _pump_or_stop(self) -> None:
        """`_pump` for use within a piece of work. Raises StoppedError when Stop has come."""
        self._pump()
        if not self._running:
            raise StoppedError("the worker is stopping")

    def _handle(self, envelope: Envelope[ControlMessage]) -> None:
        match envelope.message:
            case ShardMapUpdateMsg() as update:
                self._holder.publish(
                    Directory(
                        epoch=update.epoch,
                        servers={server.index: server for server in update.servers},
                        dense_owner=update.dense_owner,
                        owners=tuple(np.frombuffer(frame, dtype=np.uint16) for frame in envelope.frames),
                        served=update.served,
                        made_anew=update.made_anew,
                    )
                )
            case PauseMsg(cut=cut):
                self._pause.asked = cut
            case ProceedMsg(cut=cut):
                self._pause.proceed(cut)
            case InputKnobsMsg(knobs=knobs, cache_bytes=cache_bytes):
                if self._input is not None:
                    self._input.tune(knobs, cache_bytes)
            case RepinMsg() as repin:
                self._repin = repin
            case DrainMsg():
                self._draining = True
            case StopMsg():
                self._running = False
                self._holder.stop()
            case MembershipMsg():
                pass  # only a PS uses the membership
            case other if not self._takes(other):
                raise ProtocolError(f"the supervisor sent a {type(other).__name__} to a worker")

    def _beat(self) -> None:
        now_s = time.monotonic()
        if now_s < self._beat_at_s:
            return
        self._beat_at_s = now_s + HEARTBEAT_S
        sent, received, gpu = self._take_traffic()
        sample, self._meter = self._meter.beat(now_s, sent, received, self._take_read_s(), self._take_stages())
        self._report_progress()
        for trouble in self._input.take_troubles() if self._input is not None else ():
            self.control.send(trouble)
        self._progress += 1
        state = WAITS_FOR_SOURCE if self._waiting.is_failing else self._state
        self.control.send(HeartbeatMsg(progress=self._progress, sample=sample, state=state, gpu_memory_bytes=gpu))
