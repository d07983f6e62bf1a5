"""The report of a run that trains, in parts: the browser gets those that have changed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from markupsafe import Markup

from elastichost.reporting.render.pages import DocumentParts, live_document
from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.view.page import parts_of
from elastichost.runs.journal import utc_now
from elastichost.runs.liveness import has_ended, is_running

__all__ = ["LivePage", "pause_s"]

# The scripts and styles of its own server, and a connection to it; nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
REFRESH_S = 2.0
MOST_OF_A_CORE = 0.05  # the page of a long run takes longer to make, and is made more rarely


def pause_s(cpu_s: float) -> float:
    """The seconds until the page is made again. cpu_s: CPU time that making it took."""
    return max(REFRESH_S, cpu_s / MOST_OF_A_CORE)


class LivePage:
    """The parts of the page of one run. Threads of several readers share what was made last.

    Raises PreflightError when the run cannot be read."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._due_s = float("-inf")
        self._made: DocumentParts | None = None
        self.has_ended = False

    def parts(self) -> dict[str, Markup]:
        """id -> HTML of each part as of now, or as of the last time that it was made."""
        made = self._present()
        return {"top": made.top, **{section.anchor: section.content for section in made.sections}, "end": made.end}

    def page(self) -> str:
        """A whole page with the present parts and the script that replaces them."""
        return live_document(self._present())

    def _present(self) -> DocumentParts:
        with self._lock:
            if self._made is None or time.monotonic() >= self._due_s:
                began_s = time.thread_time()
                self._made = self._make()
                self._due_s = time.monotonic() + pause_s(time.thread_time() - began_s)
            return self._made

    def _make(self) -> DocumentParts:
        ended = has_ended(self._run_dir)  # before it is read: what comes later makes another page
        made = parts_of(read_report(self._run_dir, is_running=is_running(self._run_dir), now_utc=utc_now()))
        self.has_ended = ended
        return made
