"""The process that has imported the torch peers' libraries and forks a ready one in milliseconds.

`python -m benchmarks.peers.host`: requests are JSON lines on stdin, the answers, one pid each, lines on stdout. It has
one thread and computes nothing; with the end of stdin it ends, and what it forked with it.
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
    "elastichost.worker.model.interaction_kernels:warm",
)


@dataclass(frozen=True, slots=True)
class Fork:
    """One peer: `module` has main(PeerSettings); `log` gets what it prints."""

    module: str
    settings: str
    log: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets ended children at once
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
