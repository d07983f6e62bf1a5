"""A Slurm cluster of two nodes, both this machine, in a directory of its own. It needs Debian's packages slurmctld,
slurmd, slurm-client and munge, and leaves /etc unchanged."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["PROGRAMS", "SlurmCluster", "missing_programs"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo", "scancel")
SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/sbin"  # where daemons are, and a user's PATH may not be
LIMIT_S = 90.0

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
GresTypes=gpu
KillWait=30
MpiDefault=none
ReturnToService=2
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs={cpus} RealMemory=4000 Gres=gpu:2 State=UNKNOWN
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs={cpus} RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=short Nodes=one,two Default=YES MaxTime=1-00:00:00 State=UP PriorityTier=1
PartitionName=urgent Nodes=one,two MaxTime=1-00:00:00 State=UP PriorityTier=2
"""


def missing_programs() -> tuple[str, ...]:
    """The programs of Slurm and munge that are not installed."""
    return tuple(name for name in PROGRAMS if shutil.which(name, path=_search_path()) is None)


def _search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_PATH))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class SlurmCluster:
    """Use it as a context manager. `environment` is for the programs of Slurm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": _search_path(), "SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", "spool.one", "spool.two"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        facts = {"host": host, "user": getpass.getuser(), "folder": folder, "cpus": os.cpu_count()}
        ports = {"control_port": _free_port(), "one": _free_port(), "two": _free_port()}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts, **ports))
        (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SlurmCluster:
        try:
            self._start_munge()
            self._start("slurmctld", "-D")
            for node in ("one", "two"):
                self._start("slurmd", "-D", "-N", node)
            idle = ("sinfo", "--noheader", "--partition=short", "--format=%D %T")
            self.wait(lambda: self.call(*idle).strip() == "2 idle", "to have idle nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start_munge(self) -> None:
        names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        files = [f"--{option}={self.folder / name}" for option, name in names.items()]
        self._start("munged", "--foreground", "--force", f"--log-file={self.folder / 'munge.log'}", *files)
        self.wait((self.folder / "munge.socket").exists, "to have the socket of munge")

    def _start(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.{len(self._daemons)}.output").open("wb") as output:
            self._daemons.append(
                subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            )

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits until `is_so`. Raises AssertionError with the logs of the daemons if one ends or it takes too long."""
        ends = time.monotonic() + LIMIT_S
        while not is_so():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not ended and time.monotonic() < ends, (
                f"waited for the cluster {what}; ended: {ended}\n{self.logs()}"
            )
            time.sleep(0.1)

    def logs(self) -> str:
        """The ends of all logs."""
        found = sorted((*self.folder.glob("*.log"), *self.folder.glob("*.output")))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in found)

    def call(self, *command: str, check: bool = True, cwd: Path | None = None) -> str:
        """Calls a program of Slurm and returns its output, stdout and stderr together."""
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{self.logs()}"
        return done.stdout

    def submit(self, script: Path, *options: str) -> int:
        """Submits a script and returns the number of its job."""
        return int(self.call("sbatch", "--parsable", *options, str(script), cwd=script.parent).strip().split(";")[0])

    def state(self, job: int) -> str:
        """The state of a job, and its number of restarts: "RUNNING 1"."""
        facts = self.facts(job)
        return f"{facts['JobState']} {facts['Restarts']}"

    def facts(self, job: int) -> dict[str, str]:
        """What `scontrol show job` says."""
        words: Sequence[str] = self.call("scontrol", "--oneliner", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)
