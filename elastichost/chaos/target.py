"""The run that faults are injected into: a real `elastichost run` in its own process, and its resumptions."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from elastichost.arena.host import arena_directory, reclaim, replica_directory, socket_directory
from elastichost.chaos.faults.processes import MARK, end_marked, marked_processes, signal_marked
from elastichost.chaos.faults.source_process import SourceProcess
from elastichost.chaos.scene import Scene
from elastichost.chaos.tails import AppliedTail, JournalTail
from elastichost.config.hosts import HostsFile, load_hosts, read_hosts
from elastichost.errors import ConfigError, JobFailedError
from elastichost.gpu.memory import memory_holder
from elastichost.host.prctl import set_parent_death_signal
from elastichost.metrics import read_status
from elastichost.run_files import HOSTS_FILE, JOURNAL_FILE
from elastichost.supervisor.remote.agent_launcher import AGENT_MODULE
from elastichost.wire.commands import AcceptedMsg, Command, CommandClient, JoinMsg, ReachedMsg
from elastichost.wire.sockets import VIA_VARIABLE

__all__ = ["RunUnderChaos"]

FORK_SERVER = b"elastichost.supervisor.launch.fork_server"
AGENT = AGENT_MODULE.encode()
HOLDER = memory_holder.__file__.encode()
END_LIMIT_S = 120.0
GUARDIAN_LIMIT_S = 15.0  # in this time the fork server ends all processes of a dead supervisor, and removes its files
POLL_S = 0.004
JOIN_AGAIN_S = 0.5  # from the refusal of a join to the next attempt
LOG_BYTES = 8192


class RunUnderChaos:
    """A run and all its processes. Use as a context manager: it starts the run, and leaves no process or shared memory
    of it behind. The kernel kills the supervisor when this process ends, and the run ends with its supervisor.

    settings: the `--set` options; environment: additional variables of the run; is_sync: the job is in sync mode;
    source: stands before the training data, None: workers read files; hosts: number of arenas; machines: a hosts file
    that names only hosts on this machine. The part "faults" implements `faults.process_faults.Target`.

    mark: value of a variable in the environment of all processes of the run, which identifies them; scene, applied:
    the state of the run, updated by `look`; exit_code: of the supervisor, None while it runs."""

    def __init__(
        self,
        job: Path,
        settings: Sequence[str],
        run_dir: Path,
        hang_timeout_s: float,
        environment: dict[str, str],
        is_sync: bool = False,
        hosts: int = 1,
        machines: Path | None = None,
        source: SourceProcess | None = None,
    ) -> None:
        self.source = source
        self.run_dir, self.hang_timeout_s, self.is_sync, self.hosts = run_dir, hang_timeout_s, is_sync, hosts
        self.mark = secrets.token_hex(8)
        self.scene = Scene()
        self.applied = AppliedTail(run_dir)
        self.exit_code: int | None = None
        self._job, self._settings = job, tuple(settings)
        self._machines = machines
        self._machines_file = load_hosts(machines) if machines is not None else HostsFile(hosts=())
        # the history of jobs must not contain speeds under faults
        self._environment = {**os.environ, "ELASTICHOST_HISTORY": "off", **environment, MARK: self.mark}
        self._journal = JournalTail(run_dir / JOURNAL_FILE)
        self._stopped: list[tuple[float, int]] = []  # (when it continues, pid)
        self._clients: list[CommandClient] = []
        self._must_reread = False
        self._killed_when = (0, 0)  # (supervisors so far, hosts lost so far) when an agent was last killed
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the run
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RunUnderChaos:
        others = ("--hosts", str(self._machines)) if self._machines is not None else ()
        self._start("run", str(self._job), "--run-dir", str(self.run_dir), *self._overrides(), *others)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self.exit_code is None:
            self._process.kill()
            deadline_s = self.now_s() + GUARDIAN_LIMIT_S
            while marked_processes(self.mark) and self.now_s() < deadline_s:
                self.exit_code = self._process.poll()
                self.wait_a_little()
        end_marked(self.mark)
        if self._process is not None:
            self._process.wait()
        for client in self._clients:
            client.close()
        for directory in self.directories():
            reclaim(directory)
        self._log.close()

    def directories(self) -> tuple[Path, ...]:
        """The directories of the arenas and sockets of all supervisors of this run. Some may not exist."""
        ids = self.scene.run_ids
        # A host that joins again gets a new number, so there are at most as many more numbers as losses.
        hosts = range(self.hosts + len(self._machines_file.hosts) + len(self.scene.lost_hosts))
        arenas = [
            kind(run_id, host) for run_id in ids for host in hosts for kind in (arena_directory, replica_directory)
        ]
        return (*arenas, *map(socket_directory, ids))

    def _overrides(self) -> list[str]:
        return [word for setting in self._settings for word in ("--set", setting)]

    def _start(self, *words: str) -> None:
        self.exit_code = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "elastichost", *words, "--dashboard", "no"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,  # Ctrl-C must reach only this process, which then ends the run
            preexec_fn=_die_with_parent,
        )

    # --- looking --------------------------------------------------------------------------------------------

    def now_s(self) -> float:
        return time.monotonic()

    def look(self) -> None:
        """Reads the new lines of the journal and the new batches, and continues stopped processes when it is time."""
        generation = self.scene.generation
        for line in self._journal.poll():
            self.scene.take(line)
        self._must_reread |= self.scene.generation > max(generation, 1)
        if self._must_reread and self.scene.working("worker"):
            self._must_reread = False
            self.applied.reread()
        self.applied.poll()
        now_s = self.now_s()
        for until_s, pid in [one for one in self._stopped if one[0] <= now_s]:
            self._stopped.remove((until_s, pid))
            self.hit(pid, signal.SIGCONT)
        if self._process is not None and self.exit_code is None:
            self.exit_code = self._process.poll()

    def wait_a_little(self) -> None:
        time.sleep(POLL_S)

    @property
    def log(self) -> str:
        """The last LOG_BYTES bytes of the output of the run."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_BYTES))
        return self._log.read().decode(errors="replace")

    @property
    def is_settled(self) -> bool:
        """No process is stopped by a fault."""
        return not self._stopped

    # --- faults ---------------------------------------------------------------------------------------------

    def hit(self, pid: int, number: signal.Signals) -> bool:
        return signal_marked(pid, self.mark, number)

    def stop(self, pid: int, seconds: float) -> bool:
        if any(stopped == pid for _, stopped in self._stopped) or not self.hit(pid, signal.SIGSTOP):
            return False
        self._stopped.append((self.now_s() + seconds, pid))
        return True

    def fork_server(self) -> int | None:
        """The pid of the supervisor's fork server; None: there is none. A process that the fork server just forked can
        have the same command line, so this is the oldest one."""
        found = self._children_with(FORK_SERVER)
        return found[0] if found else None

    def memory_holder(self) -> int | None:
        """The pid of the process that keeps the model in memory of a GPU; None: there is none. It outlives the worker
        that has started it, so it need not be a child of a process of the run."""
        for pid in marked_processes(self.mark):
            with contextlib.suppress(OSError):
                if HOLDER in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return pid
        return None

    def kill_machine(self, draw: int) -> bool:
        seen = self.scene.generation, len(self.scene.lost_hosts)
        agents = self._children_with(AGENT)
        if not agents or len(agents) != len(self._machines_there()) or seen == self._killed_when:
            return False
        self._killed_when = seen
        return self.hit(agents[draw % len(agents)], signal.SIGKILL)

    def _children_with(self, word: bytes) -> tuple[int, ...]:
        """Pids of the children of the supervisor that have `word` in their command line, the oldest first."""
        found: list[tuple[int, int]] = []
        for pid in set(marked_processes(self.mark)) - self.scene.pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
                    facts = stat[stat.rindex(")") + 2 :].split()
                    if self._process is not None and int(facts[1]) == self._process.pid:
                        found.append((int(facts[19]), pid))
        return tuple(pid for _, pid in sorted(found))

    def scale(self, workers: int, servers: int) -> Callable[[], int | None]:
        words = ("scale", str(self.run_dir), f"workers={workers}", f"servers={servers}")
        return subprocess.Popen(
            [sys.executable, "-m", "elastichost", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in self._environment.items() if name != VIA_VARIABLE},
            start_new_session=True,
            preexec_fn=_die_with_parent,
        ).poll

    def join(self, name: str) -> Callable[[], int | None]:
        again = tuple(host for host in self._machines_file.hosts if host.shown == name)
        command = JoinMsg(self._machines_file.model_copy(update={"hosts": again}).model_dump_json())
        is_done, again_s = self.command(command), 0.0

        def code() -> int | None:
            nonlocal is_done, again_s
            if again_s:  # it was refused because another host was joining or being lost
                if self.now_s() < again_s:
                    return None
                is_done, again_s = self.command(command), 0.0
            done = is_done()
            if done is False and self.exit_code is None and name not in self._machines_there():
                again_s = self.now_s() + JOIN_AGAIN_S
                return None
            return None if done is None else 0

        return code

    def _machines_there(self) -> set[str]:
        """Names of the other hosts that the run uses, or will use after a resume."""
        with contextlib.suppress(OSError, ConfigError):
            return {host.shown for host in read_hosts(self.run_dir / HOSTS_FILE).hosts}
        return set()

    def command(self, command: Command) -> Callable[[], bool | None]:
        """Sends a command to the supervisor. Returns a function that tells whether the command was done; None: this is
        not known yet."""
        client = CommandClient(read_status(self.run_dir).commands)
        self._clients.append(client)
        client.send(command)

        def is_done() -> bool | None:
            reply = client.receive(0.0)
            if self.exit_code is not None:
                return False
            return None if reply is None or isinstance(reply, AcceptedMsg) else isinstance(reply, ReachedMsg)

        return is_done

    def resume(self, number: signal.Signals) -> bool:
        """Raises JobFailedError when the run does not end, or when its exit code is not the one of this signal."""
        expected = (75,) if number == signal.SIGINT else (-int(number),)
        self.end(number)
        if self.exit_code not in expected:
            raise JobFailedError(f"after {number.name} the run ended with exit code {self.exit_code}:\n{self.log}")
        self._start("resume", str(self.run_dir))
        return True

    def end(self, number: signal.Signals) -> None:
        """Sends a signal to the supervisor and waits for its end; then `exit_code` is set. Raises JobFailedError when
        it does not end within END_LIMIT_S."""
        assert self._process is not None
        self.look()
        for _, pid in self._stopped:
            self.hit(pid, signal.SIGCONT)
        self._stopped.clear()
        self._process.send_signal(number)
        deadline_s = self.now_s() + END_LIMIT_S
        while self.exit_code is None:
            if self.now_s() > deadline_s:
                raise JobFailedError(f"the run did not end within {END_LIMIT_S:g} s of {number.name}:\n{self.log}")
            self.look()
            self.wait_a_little()
        self.look()


def _die_with_parent() -> None:
    set_parent_death_signal(signal.SIGKILL)
