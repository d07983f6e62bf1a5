"""`checkpoint.mirror = "HOST:/directory"`: every checkpoint is also copied to another machine of the run.

The directory there is a run directory that `resume` accepts: it has the job as that machine received it, the source of
the model, and the checkpoints. So a run can be resumed on the second machine when the first one is lost.
"""

from __future__ import annotations

import functools
from pathlib import Path

from elastichost.checkpoint.format import load_manifest
from elastichost.checkpoint.manifest import DIGEST_NAME, MANIFEST_NAME
from elastichost.checkpoint.mirror import Mirror, Mirrored
from elastichost.errors import CheckpointError
from elastichost.runs.events import MirrorMissing
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.remote.messages import CheckpointKeptMsg
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from elastichost.supervisor.remote.transfers import TransferEnd

__all__ = ["INCOMING", "HostMirror", "mirror_of"]

INCOMING = "incoming"  # directory in the run directory there, for files of a checkpoint that is not complete yet


def mirror_of(run: RunContext) -> Mirror | HostMirror | None:
    """The mirror of the job's settings. None: it has none, or, with an event, the named host is not in the run."""
    settings = run.job.checkpoint
    if settings.mirror_path is not None:
        return Mirror(settings.mirror_path / run.directory.identity.folder, settings.keep)
    if settings.mirror_host is None:
        return None
    name, directory = settings.mirror_host
    launchers = run.machines.launchers.values() if run.machines is not None else ()
    found = next((one for one in launchers if one.host.shown == name and not one.lost), None)
    if found is None:
        run.note(MirrorMissing(name))
        return None
    return HostMirror(found, f"{directory}/{run.directory.identity.folder}", settings.keep)


class HostMirror:
    """Like `checkpoint.mirror.Mirror`, on another machine. One checkpoint is copied at a time, and only the newest one
    waits. Files are sent in pieces between other messages; the agent verifies and commits them."""

    def __init__(self, launcher: RemoteLauncher, directory: str, keep: int) -> None:
        self.directory = f"{launcher.host.shown}:{directory}"
        self._launcher, self._there, self._keep = launcher, directory, keep
        self._sending: Path | None = None
        self._left: set[str] = set()  # its files that have not arrived
        self._problem = ""
        self._wanted: Path | None = None
        self._results: list[Mirrored] = []
        launcher.on_kept = self._kept

    @property
    def is_busy(self) -> bool:
        """A copy is being made or waits, or a result was not taken yet."""
        return bool(self._results) or self._sending is not None or self._wanted is not None

    @property
    def copying(self) -> Path | None:
        """The checkpoint whose copy is under way: its files must stay until the copy is done."""
        return self._sending

    def copy(self, checkpoint: Path) -> None:
        """Copies a checkpoint in the background. It replaces one that waits."""
        self._wanted = checkpoint
        self._begin()

    def _begin(self) -> None:
        if self._sending is not None or self._wanted is None:
            return
        checkpoint, self._wanted = self._wanted, None
        try:
            manifest = load_manifest(checkpoint)
        except CheckpointError as error:
            self._results.append(Mirrored(checkpoint.name, 0, error))
            return
        names = (*sorted({block.file for block in manifest.blocks}), DIGEST_NAME, MANIFEST_NAME)
        self._sending, self._left, self._problem = checkpoint, set(names), ""
        for name in names:
            there = f"{INCOMING}/{checkpoint.name}/{name}"
            self._launcher.files.send(there, checkpoint / name, functools.partial(self._arrived, name))

    def _arrived(self, name: str, end: TransferEnd) -> None:
        self._left.discard(name)
        self._problem = self._problem or end.problem
        if self._left or self._sending is None:
            return
        if self._problem:
            self._end(self._sending, CheckpointError(f"{self.directory}: {self._problem}"), 0)
        else:
            self._launcher.keep_checkpoint(f"{INCOMING}/{self._sending.name}", self._there, self._keep)

    def _kept(self, word: CheckpointKeptMsg) -> None:
        if self._sending is not None:
            error = CheckpointError(f"{self.directory}: {word.problem}") if word.problem else None
            self._end(self._sending, error, word.bytes)

    def _end(self, checkpoint: Path, error: CheckpointError | None, size_bytes: int) -> None:
        self._results.append(Mirrored(checkpoint.name, size_bytes, error))
        self._sending = None
        self._begin()

    def results(self) -> tuple[Mirrored, ...]:
        """Copies that have ended since the last call. Does not block."""
        if self._launcher.lost and self._sending is not None:
            self._end(self._sending, CheckpointError(f"{self.directory}: the host is lost"), 0)
        found, self._results = tuple(self._results), []
        return found

    def close(self) -> bool:
        """Cancels copies. Returns whether one was unfinished; its files are removed with the run directory there."""
        is_unfinished = self._sending is not None or self._wanted is not None
        self._sending, self._wanted = None, None
        return is_unfinished
