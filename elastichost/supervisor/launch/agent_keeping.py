"""An agent keeps checkpoints for good: what came for its run becomes a run directory that can be resumed there."""

from __future__ import annotations

import shutil
from pathlib import Path

from elastichost.checkpoint.files import remove_tree
from elastichost.checkpoint.mirror import mirror_checkpoint
from elastichost.checkpoint.places import RUN_FILE
from elastichost.errors import ElastichostError
from elastichost.supervisor.launch.agent_messages import CheckpointKept

__all__ = ["keep"]

JOB, HOSTS, SOURCE, CHECKPOINTS = "job.resolved.toml", "hosts.json", "source", "checkpoints"
ALONE = '{"hosts": []}'  # whoever resumes it names the others, or they join


def keep(run_dir: Path, incoming: Path, directory: Path, count: int) -> CheckpointKept:
    """Verifies the checkpoint `incoming`, and makes it one of the newest `count` below the directory; the job and its
    source, from the run's directory, beside them. Never raises for what a disk does."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (JOB, RUN_FILE):
            shutil.copyfile(run_dir / name, directory / name)
        (directory / HOSTS).write_text(ALONE)
        shutil.copytree(run_dir / SOURCE, directory / SOURCE, dirs_exist_ok=True)
        size_bytes = mirror_checkpoint(incoming, directory / CHECKPOINTS, count)
        remove_tree(incoming)
    except ElastichostError as error:
        return CheckpointKept(0, error.message)
    except OSError as error:
        return CheckpointKept(0, f"{directory}: {error.strerror or error}")
    return CheckpointKept(size_bytes, "")
