"""Starts an agent: on this machine, over ssh or on a node of Ray. Keeps the agent's stderr for error messages."""

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

__all__ = ["AgentProcess", "agent_command", "start_agent"]

AGENT_MODULE = "elastichost.supervisor.remote.agent"
RELAY_MODULE = "elastichost.supervisor.remote.ray.relay"
ENDS_S = 2.0
# ssh probes the connection every ALIVE_EVERY_S seconds, and ends by itself after ALIVE_TIMES probes without an answer.
ALIVE_EVERY_S, ALIVE_TIMES = 2, 3
CONNECT_TIMEOUT_S = 10


def agent_command(host: HostSection, control_path: Path | None) -> list[str]:
    """The command (argv) of the process on this machine: ssh, the relay of Ray, or the agent itself. control_path: the
    path of a socket that several ssh connections to the host share; None: they share none."""
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
    """The environment of the process; None: that of this process. An agent on this machine gets no SSH_CONNECTION: the
    variable would describe the connection to the supervisor, not one to the agent."""
    if host.transport != "local":
        return None
    return {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}


def start_agent(command: list[str], stderr: IO[bytes], environment: dict[str, str] | None) -> subprocess.Popen[bytes]:
    """Starts the process, with pipes as its input and output. environment: None: that of this process. Raises
    OSError."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        bufsize=0,
        env=environment,
        start_new_session=True,  # so Ctrl-C in the terminal reaches only the supervisor
    )


class AgentProcess:
    """The process on this machine: ssh, the relay of Ray, or the agent. Its stderr is kept for error messages."""

    def __init__(self, host: HostSection, control_path: Path | None) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = start_agent(agent_command(host, control_path), self._stderr, _environment(host))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def streams(self) -> tuple[int, int]:
        """The descriptors of its output and its input: (reading, writing)."""
        assert self._process.stdout is not None and self._process.stdin is not None
        return self._process.stdout.fileno(), self._process.stdin.fileno()

    def last_words(self, patience_s: float = 0.0) -> str:
        """The last lines of its stderr, at most 20; "" when there are none. patience_s: how long to wait first for the
        end of the process, which may write its error after it has closed its output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self._stderr.seek(0)
        lines = self._stderr.read()[-4000:].decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-20:])

    def hang_up(self) -> None:
        """Closes its output and its input. The closed input ends the agent. May be called again."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self, patience_s: float = ENDS_S) -> int | None:
        """Closes the streams, waits for the end of the process, and kills it after `patience_s`. Returns the exit
        code."""
        self.hang_up()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()
        return self._process.returncode
