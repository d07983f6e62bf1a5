"""`RunHandle`: a run that was started from Python and trains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from elastichost.api.callbacks import Callback, CallbackThreads
from elastichost.api.launch import StartMsg, SupervisorEndMsg, SupervisorProcess
from elastichost.api.notebook import html_page
from elastichost.api.progress import line_of
from elastichost.api.run import Run
from elastichost.errors import ConfigError, ElastichostError, PreflightError
from elastichost.metrics import FINISHED_STATES, RunStatus, read_status
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.runs.directory import is_before_run, remove_run_files
from elastichost.runs.events import JournalLine
from elastichost.runs.follow import RunFollower
from elastichost.wire.commands import AcceptedMsg, CommandClient, ReachedMsg, ScaleMsg

__all__ = ["RunHandle"]

CALLBACKS_END_S = 30.0
REPLY_S = 0.5
POLL_S = 0.05


class RunHandle:
    """A run that trains in processes of its own. It ends with this Python process, in a way that it can be resumed:
    call `wait` before a script ends.

    dir: the directory of the run. Methods may be called from any thread."""

    def __init__(self, start: StartMsg, callbacks: Sequence[Callback]) -> None:
        self.dir = Path(start.run_dir)
        self._earlier = _status_in(self.dir) if start.is_resumed else None  # of an earlier supervisor
        self._callbacks = CallbackThreads(callbacks, self.dir, from_now=start.is_resumed)
        self._process = SupervisorProcess(start)
        self._ended = threading.Event()
        self._run: Run | None = None
        self._error: ElastichostError | None = None
        self._callbacks.start()
        threading.Thread(target=self._watch, name=f"watch {self.dir.name}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<RunHandle {self.dir.name}: {self._now()}>"

    def _repr_html_(self) -> str:
        if self._run is not None:
            return self._run._repr_html_()
        return html_page(f"Run {self.dir.name}", {"now": self._now(), "directory": self.dir})

    def _now(self) -> str:
        """In a few words, what the run does or how it ended."""
        if self._error is not None:
            return f"{type(self._error).__name__}: {self._error.message}"
        if self._run is not None:
            return self._run.status
        status = self._own_status()
        return line_of(status, has_bar=False) if status is not None else "starting"

    def wait(self, timeout_s: float | None = None) -> Run:
        """Waits for the end of the run and returns its results. Raises the typed error that the run failed with, as
        the command line shows it, and TimeoutError when it still trains after `timeout_s`."""
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"the run in {self.dir} still trains after {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def stop(self) -> None:
        """Asks the run to stop: workers finish their batches, a checkpoint is written, and `wait` returns a Run with
        status "stopped", which `eh.resume` continues."""
        self._process.stop()

    def kill(self) -> None:
        """Kills all processes of the run at once. It can be resumed from its newest checkpoint."""
        self._process.kill()

    def status(self) -> RunStatus:
        """What the run does: progress, samples/s, loss, processes. Waits for the first status of a run that has just
        begun or been resumed. Raises the error that the run failed with if it ended before it had one."""
        while True:
            has_ended = self._ended.is_set()  # before the status is read: nothing is written after it
            if (status := self._own_status()) is not None:
                return status
            if has_ended:
                self.wait()
                return read_status(self.dir)  # the run was done before it was resumed
            self._ended.wait(POLL_S)

    def _own_status(self) -> RunStatus | None:
        """The newest status; None: the supervisor of this handle has written none yet, so that there is none, or only
        that of an earlier supervisor."""
        status = _status_in(self.dir)
        return status if status != self._earlier else None

    def events(self) -> Iterator[JournalLine]:
        """Every event of the run from its beginning, and each new one when it happens, until the run has ended.
        `line.event` is typed; `print(line)` shows its time and a sentence."""
        follower = RunFollower(self.dir)
        while True:
            is_last = self._ended.is_set()
            yield from (one for one in follower.poll() if isinstance(one, JournalLine))
            if is_last:
                return
            self._ended.wait(REPLY_S)

    def scale(
        self, *, workers: int | None = None, servers: int | None = None, worker_cores: int | None = None
    ) -> dict[str, int | float | str | None]:
        """Changes the numbers of workers, parameter servers and cores of a worker. Returns when the run has them and
        `status` shows them, with what was measured. None: unchanged. Raises ConfigError for numbers that the run
        refuses, PreflightError if it does not train."""
        if workers is None and servers is None and worker_cores is None:
            raise ConfigError("nothing to scale", hint="for example handle.scale(workers=3)")
        client = CommandClient(self._address())
        try:
            client.send(ScaleMsg(workers, servers, worker_cores))
            while True:
                reply = client.receive(REPLY_S)
                if isinstance(reply, ReachedMsg):
                    self._wait_for_next_status()
                    return {name: value for name, value in reply.data.items() if not isinstance(value, dict)}
                if reply is not None and not isinstance(reply, AcceptedMsg):
                    raise (ConfigError if reply.is_usage else PreflightError)(reply.message, hint=reply.hint)
                if not self.is_running:
                    raise PreflightError(f"the run in {self.dir} has ended")
        finally:
            client.close()

    def _wait_for_next_status(self) -> None:
        """So that `status` shows what is true now; the status is written once a second."""
        before = self.status()
        while self.is_running and self.status() == before:
            time.sleep(POLL_S)

    def _address(self) -> str:
        """The socket for commands; waits until a run that starts has one."""
        while self.is_running:
            status = self.status()
            if status.commands and status.state not in FINISHED_STATES:
                return status.commands
            time.sleep(POLL_S)
        raise PreflightError(f"the run in {self.dir} has ended")

    def _watch(self) -> None:
        """Waits for the supervisor, and keeps how the run ended."""
        try:
            self._take(self._process.end())
        except ElastichostError as error:
            self._error = error
        finally:
            self._callbacks.finish((self.dir / RESOLVED_JOB_FILE).exists(), CALLBACKS_END_S)
            self._discard()
            self._ended.set()

    def _take(self, end: SupervisorEndMsg) -> None:
        if end.error is not None:
            raise end.error.error()
        self._run = Run(self.dir)

    def _discard(self) -> None:
        """Removes a directory in which no run began, but no rows: the next try needs them."""
        if is_before_run(self.dir):
            remove_run_files(self.dir)


def _status_in(run_dir: Path) -> RunStatus | None:
    try:
        return read_status(run_dir)
    except PreflightError:
        return None
