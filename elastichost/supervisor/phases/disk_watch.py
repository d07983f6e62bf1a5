"""Handles disks that are full: collects which files cannot be written, journals it, and ends a run that is to stop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elastichost.atomic_write import space_words
from elastichost.errors import DiskFullError
from elastichost.run_files import JOURNAL_FILE
from elastichost.supervisor.context import RunContext
from elastichost.wire.applied import APPLIED_FILE

__all__ = ["look_at_space", "without_space"]

STOP_WITHOUT_SPACE_S = 10.0  # how long a run that was asked to stop waits for the user to free space


def look_at_space(run: RunContext, others: Mapping[str, str], stopping_s: float | None, newest: Path | None) -> None:
    """Call it every turn. others: name of a file that training can do without -> why it cannot be written, "" when it
    can. stopping_s: when the run was asked to stop; None: it was not. newest: the newest checkpoint. Raises
    DiskFullError when the run is to stop and cannot save its training for STOP_WITHOUT_SPACE_S."""
    run.recorder.flush()
    now_s, space = run.now_s(), run.space
    space.look(JOURNAL_FILE, run.journal.problem, now_s, must_wait=True)
    commits = [record.no_space for record in run.fleet.live("server") if record.no_space]
    space.look(APPLIED_FILE, commits[0] if commits else "", now_s, must_wait=True)
    space.look("decisions.jsonl", run.recorder.waits, now_s)
    for file, problem in others.items():
        space.look(file, problem, now_s)
    if (told := space.note(space_words(run.directory.path) if space.files else "", now_s)) is not None:
        run.note(told)
    since_s = space.held_since_s
    if since_s is not None and stopping_s is not None and now_s - max(since_s, stopping_s) > STOP_WITHOUT_SPACE_S:
        raise without_space(run, newest)


def without_space(run: RunContext, newest: Path | None) -> DiskFullError:
    """The error of a run that was asked to stop and cannot save its training."""
    kept = f"the newest checkpoint is {newest.name}" if newest is not None else "there is no checkpoint"
    where = space_words(run.directory.path)
    return DiskFullError(
        f"the run was asked to stop, but {', '.join(run.space.files)} in {run.directory.path} cannot be written: no "
        f"space is left on {where}. Samples trained since the newest checkpoint are not saved; {kept}",
        hint=f"free some space, then continue from the checkpoint with `elastichost resume {run.directory.path}`",
    )
