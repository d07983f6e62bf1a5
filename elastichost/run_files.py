"""The names of the files in a run directory that more than one package reads or writes.

A file that only one module knows has its name there. `docs/reference/run-directory.md` lists all of them."""

from __future__ import annotations

__all__ = [
    "CHECKPOINTS_FOLDER",
    "HOSTS_FILE",
    "JOURNAL_FILE",
    "METRICS_FILE",
    "REPORT_FILE",
    "RESOLVED_JOB_FILE",
    "RESULT_FILE",
    "STATUS_FILE",
    "VERSIONS_FILE",
]

RESOLVED_JOB_FILE = "job.resolved.toml"  # the job with all settings, as the newest supervisor runs it
JOURNAL_FILE = "journal.jsonl"  # the events of the run, one in a line
STATUS_FILE = "status.json"  # state, progress and processes, written anew each second
METRICS_FILE = "metrics.db"  # losses, evaluations and measurements over time (SQLite)
RESULT_FILE = "result.json"  # how the run ended and what it counted
HOSTS_FILE = "hosts.json"  # the other machines of the run (`config.hosts.read_hosts`)
VERSIONS_FILE = "versions.json"  # of Python packages that the run used
REPORT_FILE = "report.html"  # the page that `report` makes
CHECKPOINTS_FOLDER = "checkpoints"
