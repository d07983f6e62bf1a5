"""Estimates the memory of jobs and writes the results to files. Tests fork it from a process that has torch imported.

    python -m tests.supervisor.estimate FOLDER...

Every folder has a job.toml. It gets estimate.json, or error.json with the name of the error and its text. The first one
also gets plan.json: the output of `elastichost plan`.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import msgspec

from elastichost.cli import run_command_line
from elastichost.config.job import load_job
from elastichost.errors import ElastichostError
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import Entries
from elastichost.supervisor.startup.memory_estimate import memory_facts
from elastichost.supervisor.startup.preflight import preflight
from elastichost.tuner.memory.peak_memory import estimate_peak
from elastichost.tuner.memory.peak_memory_facts import BESIDE


def main(folders: list[Path]) -> None:
    """Writes the results into the folders."""
    entries = Entries()
    with LocalLauncher(entries.imports, entries.calls) as launcher:
        for folder in folders:
            job = load_job(folder / "job.toml", environ={})
            try:
                facts = memory_facts(job, preflight(job), launcher, BESIDE)
            except ElastichostError as error:
                (folder / "error.json").write_bytes(msgspec.json.encode((type(error).__name__, str(error))))
                continue
            (folder / "estimate.json").write_bytes(msgspec.json.encode((facts, estimate_peak(facts))))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        run_command_line(["plan", str(folders[0] / "job.toml"), "--json"])
    (folders[0] / "plan.json").write_text(output.getvalue().splitlines()[-1])


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
