"""A supervisor that a test kills: it starts the launcher and two sleepers, prints their pids, and waits without end.

Arguments: a scratch directory, and directories that the fork server must remove.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import Started
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import SpawnRequest


def main(scratch: Path, directories: list[Path]) -> None:
    launcher = LocalLauncher(("json",))
    launcher.clean_when_lost(directories)
    launcher.wait_prepared(60)
    for index in range(2):
        arguments = json.dumps({"path": str(scratch / f"sleeper-{index}"), "child": index == 1}).encode()
        process = ProcessId("worker", index, 1)
        launcher.spawn(SpawnRequest(process, "tests.system.entries:sleep", arguments, scratch / "log"))
    pids: list[int] = []
    while len(pids) < 2 or not all((scratch / f"sleeper-{index}").exists() for index in range(2)):
        pids += [event.pid for event in launcher.events() if isinstance(event, Started)]
    children = [pid for index in range(2) for pid in json.loads((scratch / f"sleeper-{index}").read_text())]
    print(json.dumps({"server": launcher.server_pid, "own": pids, "children": children}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
