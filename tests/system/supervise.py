"""A supervisor in a separate process: `python -m tests.system.supervise JOB RUN_DIR [RESUME_FROM]`.

It ends with the exit code of the command line. If the folder of the job has a hosts.toml, the run uses those machines
too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from elastichost.config.hosts import load_hosts, with_hosts
from elastichost.config.job import load_job
from elastichost.errors import ElastichostError
from elastichost.supervisor import run_job


def main(job: Path, run_dir: Path, resume_from: Path | None) -> int:
    try:
        spec, others = load_job(job, environ={}), job.with_name("hosts.toml")
        hosts = load_hosts(others) if others.exists() else None
        spec = with_hosts(spec, hosts) if hosts is not None else spec
        return run_job(spec, run_dir, None, resume_from, hosts=hosts).exit_code
    except ElastichostError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None))
