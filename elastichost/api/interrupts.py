"""Begins a run and waits for its end; Ctrl-C and the stop button of a notebook stop it so that it can be resumed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from elastichost.api.handle import RunHandle
from elastichost.api.progress import ShownProgress
from elastichost.api.run import Run
from elastichost.errors import ElastichostError, lines_for_notebook

__all__ = ["run_to_end"]


def run_to_end(begin: Callable[[], RunHandle], shown: Sequence[ShownProgress]) -> Run:
    """The results of the run that `begin` starts. An interrupt stops it resumably, a second one kills it; both raise
    KeyboardInterrupt, which says how to go on. shown: what shows the progress of the run."""
    try:
        with _later_interrupts():
            handle = begin()
        return handle.wait()
    except ElastichostError as error:
        for one in shown:
            one.on_failure(error)
        raise
    except KeyboardInterrupt:
        said = _stopped(handle)
    interrupt = KeyboardInterrupt(said)
    # A notebook shows where the user's code was, and not where this one waited. It is no class of its own: Python ends
    # a script as interrupted only for KeyboardInterrupt itself.
    vars(interrupt)["_render_traceback_"] = lambda: lines_for_notebook(interrupt)
    raise interrupt


@contextmanager
def _later_interrupts() -> Iterator[None]:
    """Holds an interrupt back until the block has ended: a run that has just begun needs a handle to be stopped by."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: held.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        handler(signal.SIGINT, held[0])


def _stopped(handle: RunHandle) -> str:
    """Stops the run, or kills it at the next interrupt. Returns what became of it."""
    handle.stop()
    try:
        try:
            run = handle.wait()
        except KeyboardInterrupt:
            handle.kill()
            run = handle.wait()
    except ElastichostError as error:
        return f"the run is stopped: {error.message}"
    if run.is_resumable:
        return f"the run is stopped; continue it with eh.resume({str(run.dir)!r})"
    if run.status == "killed":
        return f"the run is stopped; nothing of it was saved, so train it again (its files are in {run.dir})"
    return f"the run is {run.status}: eh.Run({str(run.dir)!r})"
