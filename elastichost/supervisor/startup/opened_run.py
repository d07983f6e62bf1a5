"""Opens a run, new or to be resumed: checks it, and locks its directory. No process has started yet.

A supervisor that resumes a run checks the job, its data and its checkpoint first, which may take minutes. Meanwhile the
files would tell how the run ended before, or what its killed supervisor did last, as if it were true now.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elastichost.arena.host import Hold, socket_directory
from elastichost.atomic_write import write_atomically
from elastichost.checkpoint.format import remove_staging
from elastichost.checkpoint.places import named_source
from elastichost.config.job import JobSpec, load_job
from elastichost.datasets.files import read_pinned, written_again
from elastichost.errors import ConfigError, ElastichostError, ResumeLaterError, SourceGoneError
from elastichost.metrics import RunStatus
from elastichost.resources import HostInventory, OtherHost
from elastichost.run_files import RESULT_FILE, STATUS_FILE
from elastichost.runs.directory import RunDirectory, new_run_path
from elastichost.runs.journal_replay import EndedSize, ReplayedJournal
from elastichost.supervisor.startup.arena_takeover import ArenaClaim, claim_arena
from elastichost.supervisor.startup.preflight import Preparation, preflight
from elastichost.supervisor.startup.resume_source import ResumeSource, barred, look_for_checkpoint

__all__ = ["OpenedRun", "open_again", "open_new"]


class ResumedStatus:
    """Shows a run as starting. A run that does not begin gets its earlier status and result back (`take_back`).

    directory: of the run; this process holds its lock. commands: address of the socket at which the supervisor will
    accept commands. If the files cannot be written, they stay as they are: the run itself tells of a full disk."""

    def __init__(self, directory: RunDirectory, job: JobSpec, commands: str) -> None:
        self._directory = directory.path
        self._before: dict[str, bytes | None] = {}  # file -> its content, None if there was none
        starting = RunStatus(
            run_dir=str(directory.path),
            job=job.job.name,
            state="starting",
            supervisor_pid=os.getpid(),
            commands=commands,
            epochs=job.train.epochs,
        )
        with contextlib.suppress(OSError):
            before = {name: self._content(name) for name in (RESULT_FILE, STATUS_FILE)}
            directory.write_status(starting)
            self._before = before
            (self._directory / RESULT_FILE).unlink(missing_ok=True)  # a reader takes the state of a run from it first

    def begin(self) -> None:
        """The run begins: from now on its supervisor reports, and `take_back` changes nothing."""
        self._before = {}

    def take_back(self) -> None:
        """The run does not begin: its files tell again what they told before. Call it while the lock is held."""
        before, self._before = self._before, {}
        for name, content in before.items():
            with contextlib.suppress(OSError):  # the error that ends this supervisor matters more
                if content is None:
                    (self._directory / name).unlink(missing_ok=True)
                else:
                    write_atomically(self._directory / name, content)

    def _content(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run that passed its checks: its locked directory, and what it resumes from. shown: what a resumed run shows
    until it begins; None: the run is a new one."""

    run_id: str
    directory: RunDirectory
    prepared: Preparation
    resume_source: ResumeSource
    shown: ResumedStatus | None = None

    @property
    def commands_address(self) -> str:
        """The socket at which the supervisor of this run accepts commands."""
        return _commands_address(self.run_id)

    def begin(self) -> None:
        """The run begins: from now on its supervisor reports what the run does, and how it ends."""
        if self.shown is not None:
            self.shown.begin()

    def close(self) -> None:
        """Releases what is locked. A resumed run that has not begun shows its earlier end again."""
        if self.shown is not None:
            self.shown.take_back()
        if self.resume_source.claim is not None:
            self.resume_source.claim.release()
        self.directory.close()


def open_new(
    job: JobSpec,
    run_dir: Path | None,
    start_from: Path | None,
    lent: HostInventory | None,
    elsewhere: Mapping[int, OtherHost] | None,
) -> OpenedRun:
    source = named_source(start_from) if start_from is not None else None
    found = look_for_checkpoint(source, None) if source is not None else None
    prepared = preflight(job, lent=lent, elsewhere=elsewhere)
    run_id = _new_run_id()
    path = run_dir or new_run_path(Path.cwd(), job.job.name, run_id)
    resume_source = ResumeSource(source, found=found, trains_anew=source is not None)
    return OpenedRun(run_id, RunDirectory.open(path, job, resume=False, run_id=run_id), prepared, resume_source)


def open_again(
    job: JobSpec,
    run_dir: Path,
    start_from: Path | None,
    held: tuple[Hold, ...],
    lent: HostInventory | None,
    elsewhere: Mapping[int, OtherHost] | None,
) -> OpenedRun:
    """Opens a run to resume, and shows it as starting. Claims the arena before anything slow: the arena reaper keeps it
    a few seconds only. If it raises an error, the run shows its earlier end again."""
    directory: RunDirectory | None = None
    claim: ArenaClaim | None = None
    shown: ResumedStatus | None = None
    try:
        run_id = _new_run_id()
        directory = RunDirectory.open(run_dir, job, resume=True, run_id=run_id)
        shown = ResumedStatus(directory, job, _commands_address(run_id))
        source = named_source(start_from) if start_from is not None else directory.checkpoint_source
        claim = claim_arena(directory.path, held)
        if start_from is not None:
            claim = claim.without_arena(f"--from names the checkpoint in {source}")
        elif job.resources.hosts > 1 and claim.held is not None:
            claim = claim.without_arena(f"the rows belong in the arenas of {job.resources.hosts} hosts now")
        prepared = _prepared_again(job, directory, claim, lent, elsewhere)
        found = look_for_checkpoint(source, claim) if claim.held is None else None
        remove_staging(directory.checkpoints)
        known = claim.replayed
        resume_source = ResumeSource(source, claim, found, known.next_lease_id, barred(known.roll_backs))
        return OpenedRun(run_id, directory, prepared, resume_source, shown)
    except ElastichostError:
        for one in (*held, *((claim.held,) if claim is not None and claim.held is not None else ())):
            one.release()
        if shown is not None:
            shown.take_back()
        if directory is not None:
            if not directory.was_used:
                directory.discard()
            directory.close()
        raise


def _prepared_again(
    job: JobSpec,
    directory: RunDirectory,
    claim: ArenaClaim,
    lent: HostInventory | None,
    elsewhere: Mapping[int, OtherHost] | None,
) -> Preparation:
    """The checks of a run that is resumed. Raises ResumeLaterError when its data cannot be reached: a new run is told
    that its address may be wrong, but this one has read it before."""
    before = read_pinned(directory.path)
    ended = _ended_size(directory, job, claim.replayed)
    try:
        prepared = preflight(job, claim.bytes, ended, lent, elsewhere, before.with_sizes_only())
    except SourceGoneError as error:
        raise ResumeLaterError(
            error.message, hint=f"`elastichost resume {directory.path}` goes on when the source works again"
        ) from error
    return replace(prepared, warnings=(*prepared.warnings, *written_again(before, prepared.files)))


def _ended_size(directory: RunDirectory, job: JobSpec, known: ReplayedJournal) -> EndedSize | None:
    """The size that the run ended with. None: it is not recorded, or the job file has a new `tuner.first_plan`."""
    try:
        before = load_job(directory.resolved, environ={})
    except ConfigError:
        return None
    return known.ended if before.tuner.first_plan == job.tuner.first_plan else None


def _commands_address(run_id: str) -> str:
    return f"ipc://{socket_directory(run_id)}/commands"


def _new_run_id() -> str:
    """A random id. Raises PreflightError, before a run directory is made, when no path is short enough for sockets."""
    run_id = secrets.token_hex(8)
    socket_directory(run_id)
    return run_id
