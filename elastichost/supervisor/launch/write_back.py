"""Has a model written from memory of a GPU back to the arena, for a checkpoint that finds no worker alive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from elastichost.arena.recovery.device_residence import read_residence
from elastichost.atomic_write import is_out_of_space
from elastichost.errors import CheckpointError, CheckpointSpaceError, ModelLostError
from elastichost.gpu.memory.write_back import MODEL_LOST

__all__ = ["WriteBack"]

PROGRAM = "elastichost.gpu.memory.write_back"
SHOWN_BYTES = 500


class WriteBack:
    """Has the model of one arena written back. version: of the dense vector, with which it must agree. logs: gets what
    the process prints. failed: is called when it could not be written back now."""

    def __init__(
        self, arena: Path, version: Callable[[], int], logs: Path, failed: Callable[[CheckpointError], None]
    ) -> None:
        self._arena, self._version, self._log, self._failed = arena, version, logs / "write-back.log", failed
        self._then: Callable[[], None] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def when_written(self, then: Callable[[], None]) -> None:
        """Calls `then` once the model in the arena is the one that was trained: now, or in `look`. No worker may train
        until then."""
        self.cancel()
        resident = read_residence(self._arena)
        if resident is None or resident.written_version == self._version():
            then()
            return
        command = [sys.executable, "-m", PROGRAM, str(self._arena), str(os.getpid())]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": resident.device}
        try:
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            kind = CheckpointSpaceError if is_out_of_space(error) else CheckpointError
            self._failed(kind(f"the model cannot be written back from memory of the GPU: {error}"))
            return
        self._then = then

    def look(self) -> None:
        """Goes on when the process has ended. Raises ModelLostError when the model is lost."""
        if self._process is None or (code := self._process.poll()) is None:
            return
        then, self._then, self._process = self._then, None, None
        if code != 0:
            said = self._log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace").strip().rpartition("\n")[2]
            said = said or f"the process that writes the model back ended with code {code}"
            if code == MODEL_LOST:
                raise ModelLostError(said)
            self._failed(CheckpointError(said, hint=f"see {self._log}"))
        elif then is not None:
            self.when_written(then)  # a batch may have been committed meanwhile

    def cancel(self) -> None:
        """Ends the process. It may have copied a part of the model, which the record does not count."""
        self._then = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
