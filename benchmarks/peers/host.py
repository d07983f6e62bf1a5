"""A process that has imported the libraries of the torch peers and forks a peer in milliseconds.

`python -m benchmarks.peers.host` reads requests as JSON lines from stdin and writes the pid of each new peer as a line
to stdout. It has one thread and computes nothing. It ends at the end of stdin, and its peers end with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from typing import NoReturn

__all__ = ["Fork", "main"]

IMPORTS = ("torch", "torch.distributed.rpc", "benchmarks.peers.tbe", "benchmarks.peers.dmp", "benchmarks.peers.rpc")
LATE_IMPORTS = ("benchmarks.peers.bare_loop",)
CALLS = (
    "elastichost.arena.kernels:warm",
    "elastichost.datasets.warm:warm_kernels",
    "elastichost.worker.model.fusion:warm",
)


@dataclass(frozen=True, slots=True)
class Fork:
    """A request for one peer. `module` has main(PeerSettings); the output of the peer goes to `log`."""

    module: str
    settings: str
    log: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended children at once
    gc.disable()
    with_bare_loop = "--bare-loop" in sys.argv
    for name in (*IMPORTS, *(LATE_IMPORTS if with_bare_loop else ())):
        importlib.import_module(name)
    for call in CALLS if with_bare_loop else ():
        module, _, function = call.partition(":")
        getattr(importlib.import_module(module), function)()
    gc.freeze()
    for line in sys.stdin:
        _fork(Fork(**json.loads(line)))


def _fork(request: Fork) -> None:
    pid = os.fork()
    if pid == 0:
        _become(request)
    sys.stdout.write(f"{pid}\n")
    sys.stdout.flush()


def _become(request: Fork) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        gc.enable()
        from benchmarks.peers.common import PeerSettings, enter_role

        enter_role("worker-0")
        importlib.import_module(request.module).main(PeerSettings.from_json(request.settings))
        code = 0
    finally:
        if code:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
