"""How an agent is started, here, over ssh or on a node of Ray, and its last words when it ends early."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from elastichost.config.hosts import HostSection

__all__ = ["AgentProcess", "agent_command"]

AGENT_MODULE = "elastichost.supervisor.remote.agent"
RELAY_MODULE = "elastichost.supervisor.remote.ray.relay"
ENDS_S = 2.0
# A host that does not answer within three of these is given up by ssh itself, whatever the supervisor does meanwhile.
ALIVE_EVERY_S, ALIVE_TIMES = 2, 3
CONNECT_TIMEOUT_S = 10


def agent_command(host: HostSection, control_path: Path | None) -> list[str]:
    """argv of the process at this end. control_path: a socket that later connections of ssh to the host share; None:
    none."""
    there = [host.python or sys.executable, "-m", AGENT_MODULE]
    if host.arena_directory:
        there = ["env", f"ELASTICHOST_ARENA_DIR={host.arena_directory}", *there]
    match host.transport:
        case "local":
            return there
        case "ray":
            return [sys.executable, "-m", RELAY_MODULE, host.cluster, host.node, str(host.cores), *there]
        case "ssh":
            return _ssh_command(host, control_path, there)


def _ssh_command(host: HostSection, control_path: Path | None, there: list[str]) -> list[str]:
    options = [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        f"ConnectTimeout={CONNECT_TIMEOUT_S}",
        f"ServerAliveInterval={ALIVE_EVERY_S}",
        f"ServerAliveCountMax={ALIVE_TIMES}",
        "RequestTTY=no",
        "ForwardAgent=no",
        "ForwardX11=no",
    ]
    if control_path is not None:
        options += ["ControlMaster=auto", f"ControlPath={control_path}"]
    flags = [part for option in options for part in ("-o", option)]
    return ["ssh", *flags, *host.options, "--", host.address, "exec " + shlex.join(there)]


def _environment(host: HostSection) -> dict[str, str] | None:
    """ssh and Ray have this process'. An agent of this very machine did not come over the connection that we did."""
    if host.transport != "local":
        return None
    return {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}


class AgentProcess:
    """The process at this end: ssh, the relay of Ray, or the agent itself. What it writes to stderr is kept for the
    error message."""

    def __init__(self, host: HostSection, control_path: Path | None) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            agent_command(host, control_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            env=_environment(host),
            start_new_session=True,  # Ctrl-C in the terminal is the supervisor's
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def streams(self) -> tuple[int, int]:
        """(reading, writing)."""
        assert self._process.stdout is not None and self._process.stdin is not None
        return self._process.stdout.fileno(), self._process.stdin.fileno()

    def last_words(self, patience_s: float = 0.0) -> str:
        """The end of what it wrote to stderr, one line after another; "" when that is nothing. patience_s: so long it
        is waited for its end: what it says of it may come after its output has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self._stderr.seek(0)
        lines = self._stderr.read()[-4000:].decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-20:])

    def hang_up(self) -> None:
        """Closes its input, which ends it, and its output. May be called again."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self, patience_s: float = ENDS_S) -> int | None:
        """Hangs up, waits for its end, and kills it then. The exit code."""
        self.hang_up()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()
        return self._process.returncode
