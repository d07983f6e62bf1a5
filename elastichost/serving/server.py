"""The process of `elastichost serve`: binds the port, loads the export, starts uvicorn."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import uvicorn
from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess

from elastichost.errors import ElastichostError, PreflightError
from elastichost.host.prctl import set_parent_death_signal
from elastichost.serving.app import make_app
from elastichost.serving.http_protocol import TimedProtocol
from elastichost.serving.loaded_export import LoadedExport, check_export, load_export
from elastichost.serving.settings import ServeSettings

__all__ = ["serve", "worker_app"]

SETTINGS = "ELASTICHOST_SERVE"  # environment variable through which worker processes get the settings
BACKLOG = 2048
LINE = "%(asctime)s %(levelname)s %(message)s"
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": LINE}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
    "loggers": {
        "uvicorn.error": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "elastichost.serving": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}


def serve(settings: ServeSettings, announce: Callable[[str, LoadedExport], None]) -> None:
    """Serves until SIGTERM or SIGINT, and finishes the requests that it has. announce: is called with the address and
    the export before the first request is answered. Raises ConfigError (no export), ElastichostError (it does not
    load), PreflightError (the port is taken)."""
    directory = Path(settings.directory)
    check_export(directory)
    bound = _bind(settings.host, settings.port)
    try:
        _limit_threads(settings.workers)
        # also with several workers, which load it themselves: an export that does not load is an error of this verb
        loaded = [load_export(directory, refuse_nulls=settings.refuse_nulls)]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        announce(f"http://{host}:{bound.getsockname()[1]}", loaded[0])
        if settings.workers == 1:
            uvicorn.Server(_config(settings, make_app(settings, loaded))).run(sockets=[bound])
        else:
            _serve_by_workers(settings, bound, loaded.pop().directory)
    finally:
        bound.close()


def _serve_by_workers(settings: ServeSettings, bound: socket.socket, directory: Path) -> None:
    """directory: of the export that was loaded. Raises ElastichostError when a worker could not start."""
    with tempfile.TemporaryDirectory(prefix="elastichost-serve-") as folder:
        answers = Path(folder) / "answers"
        answers.write_text(str(directory), encoding="utf-8")
        settings = msgspec.structs.replace(settings, answers_file=str(answers))
        os.environ[SETTINGS] = msgspec.json.encode(settings).decode()
        workers = Multiprocess(_config(settings, f"{__name__}:worker_app"), sockets=[bound])
        workers.run()
        if any(one.exitcode == STARTUP_FAILURE for one in workers.processes):
            raise ElastichostError(
                f"a worker process could not load {settings.directory}", hint="its own message is above"
            )


def worker_app() -> Starlette:
    """The application of a worker process, which ends with the process that started it: also if that one is killed,
    because a worker that is left would keep the port."""
    set_parent_death_signal(signal.SIGTERM)
    settings = msgspec.json.decode(os.environ[SETTINGS].encode(), type=ServeSettings)
    _limit_threads(settings.workers)
    return make_app(settings)


def _limit_threads(workers: int) -> None:
    """Gives the model of each worker process its share of the cores."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))


def _config(settings: ServeSettings, app: Starlette | str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.workers,
        http=TimedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=LOGGING,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends small answers at once only on sockets that name TCP; else each waits 40 ms for the client
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)  # from now on clients wait, and are not refused
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise PreflightError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            hint="choose another one with --port or --host; --port 0 takes any free port",
        ) from error
    bound.set_inheritable(True)
    return bound
