"""Entry of a reader process: its conversation with the supervisor. A thread reads (`service`)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from elastichost.config.job import JobSpec
from elastichost.datasets import open_reader
from elastichost.datasets.files import read_pinned
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.settings import decoded_directory, first_knobs
from elastichost.errors import ProtocolError
from elastichost.host.affinity import move_to_cores
from elastichost.plan import worker_of_reader
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import (
    ControlMessage,
    HeartbeatMsg,
    HelloMsg,
    ReadyMsg,
    RepinMsg,
    RepinnedMsg,
    StopMsg,
)
from elastichost.wire.entry import run_loop
from elastichost.wire.facts import HEARTBEAT_S, WAITS_FOR_SOURCE, StepSample
from elastichost.wire.sockets import ControlClient, wait_readable
from elastichost.worker.readers.service import ReadingService
from elastichost.worker.source_requests import PatientRequests

__all__ = ["ReaderLoop", "main"]

END_S = 1.0  # for the batch that is being read when Stop comes


def main(arguments_json: bytes) -> int:
    """Runs a reader process; returns its exit code."""
    return run_loop(arguments_json, "reader", ReaderLoop)


class _StoppedWhileStartingError(Exception):
    """Stop came while the reader waited for its source."""


class ReaderLoop:
    """One reader incarnation, from Hello to Stop. This thread beats while the other one decodes, as a worker's does."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        self._arguments, self._job = arguments, job
        self.control = ControlClient(
            arguments.control_address, arguments.job_id, arguments.process, arguments.to_supervisor
        )
        self._input = InputControl(
            first_knobs(job.data.input), shared=decoded_directory(Path(arguments.arena_directory))
        )
        self._waiting = PatientRequests(job.data.input, self.control.send, self._pump_or_stop)
        self._service: ReadingService | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._progress = 0
        self._beat_s = 0.0
        self._is_running = True

    def run(self) -> None:
        """Returns after Stop. Raises DataError when the data cannot be described, and what ended the other thread.

        A source that is down is waited for, as a worker does that starts."""
        a = self._arguments
        self.control.send(HelloMsg(a.role, a.index, a.incarnation, pid=os.getpid()))
        try:
            files = read_pinned(Path(a.run_dir))
            reader = open_reader(self._job, "train", pinned=files, control=self._input, waiting=self._waiting)
            units = reader.describe().units
        except _StoppedWhileStartingError:
            return
        service = self._service = ReadingService(
            a.socket_directory, worker_of_reader(a.index), reader, units, self._input
        )
        self._thread = threading.Thread(target=self._read, args=(service,), name="read", daemon=True)
        self._thread.start()
        self.control.send(ReadyMsg(shard_map_epoch=0))
        while self._is_running:
            self._pump()
            wait_readable([self.control.socket], max(0.0, self._beat_s - time.monotonic()))
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """Ends the other thread and the connections."""
        if self._service is not None:
            self._service.close()
        self._input.close()
        if self._thread is not None:
            self._thread.join(END_S)
        self.control.flush(1.0)

    def _read(self, service: ReadingService) -> None:
        try:
            service.run()
        except BaseException as error:  # noqa: BLE001 - handed to the other thread, which raises it
            self._error = error

    def _pump(self) -> None:
        """One turn: a heartbeat if one is due, and the messages that have come."""
        now_s = time.monotonic()
        if now_s >= self._beat_s:
            self._beat_s = now_s + HEARTBEAT_S
            self._beat()
        while (envelope := self.control.receive()) is not None:
            self._handle(envelope.message)

    def _pump_or_stop(self) -> None:
        self._pump()
        if not self._is_running:
            raise _StoppedWhileStartingError

    def _beat(self) -> None:
        self._progress += 1
        if self._service is not None:
            sample, state = self._service.take_sample(), self._service.state
        else:
            sample, state = StepSample(), WAITS_FOR_SOURCE if self._waiting.is_failing else "starting"
        self.control.send(HeartbeatMsg(progress=self._progress, sample=sample, state=state))

    def _handle(self, message: ControlMessage) -> None:
        match message:
            case RepinMsg(cores=cores):
                move_to_cores(cores)
                self.control.send(RepinnedMsg(cores))
            case StopMsg():
                self._is_running = False
            case other:
                raise ProtocolError(f"the supervisor sent a {type(other).__name__} to a reader")
