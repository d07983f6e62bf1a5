"""A supervisor that writes its keys to a file: `python -m benchmarks.hostile.leaky_supervisor JOB RUN_DIR`.

hosts.toml is in the folder of JOB. RUN_DIR.keys gets one line for each key: of the supervisor (public key only), of
every incarnation, of accepted incarnations without a process (INSIDERS), and of one incarnation that has ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from elastichost.config.hosts import load_hosts, with_hosts
from elastichost.config.job import load_job
from elastichost.errors import ElastichostError
from elastichost.plan import ProcessId
from elastichost.supervisor import job as supervisor_job
from elastichost.supervisor.remote.keyring import Keyring
from elastichost.wire.security.keys import KeyPair

__all__ = ["ENDED", "INSIDERS", "Leaked", "read_keys"]

INSIDERS = (ProcessId("worker", 30, 1), ProcessId("server", 30, 1))
ENDED = ProcessId("worker", 31, 1)


class Leaked(msgspec.Struct, frozen=True):
    """A leaked key. incarnation: such as `worker-0.1`, or "supervisor", which has no secret key here."""

    incarnation: str
    keys: KeyPair


def read_keys(run_dir: Path) -> dict[str, KeyPair]:
    """The leaked keys by incarnation."""
    lines = _path_for(run_dir).read_bytes().splitlines()
    leaked = [msgspec.json.decode(line, type=Leaked) for line in lines]
    return {one.incarnation: one.keys for one in leaked}


def _path_for(run_dir: Path) -> Path:
    return run_dir.with_name(f"{run_dir.name}.keys")


def leaky(path: Path) -> type[Keyring]:
    """A subclass of Keyring that writes all keys to `path`."""

    class Leaky(Keyring):
        def __init__(self) -> None:
            super().__init__()
            self._leak("supervisor", KeyPair(self.own.public, ""))
            for incarnation in (*INSIDERS, ENDED):
                self.issue(incarnation, is_elsewhere=True)
            self.revoke(ENDED)

        def issue(self, process: ProcessId, *, is_elsewhere: bool) -> KeyPair:
            keys = super().issue(process, is_elsewhere=is_elsewhere)
            self._leak(str(process), keys)
            return keys

        def _leak(self, incarnation: str, keys: KeyPair) -> None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(msgspec.json.encode(Leaked(incarnation, keys)) + b"\n")

    return Leaky


def supervise(job: Path, run_dir: Path) -> int:
    supervisor_job.Keyring = leaky(_path_for(run_dir))  # type: ignore[attr-defined]
    hosts = load_hosts(job.with_name("hosts.toml"))
    try:
        return supervisor_job.run_job(with_hosts(load_job(job, environ={}), hosts), run_dir, hosts=hosts).exit_code
    except ElastichostError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1]), Path(sys.argv[2])))
