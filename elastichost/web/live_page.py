"""The report of a run that trains, in parts: the browser gets those that have changed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_parts import document
from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.view.page import parts_of
from elastichost.runs.journal import utc_now
from elastichost.runs.liveness import is_running

__all__ = ["LivePage"]

# The page's own script, and a connection to its own server; nothing else.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'"
REFRESH_S = 2.0


class LivePage:
    """The parts of the page of one run. Threads of several readers share what was made last.

    Raises PreflightError when the run cannot be read."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._made_s = float("-inf")
        self._parts: dict[str, Markup] = {}
        self._title, self._names = "", list[tuple[str, str]]()
        self.has_ended = False

    def parts(self) -> dict[str, Markup]:
        """id -> HTML of each part as of now, at most REFRESH_S old."""
        with self._lock:
            if time.monotonic() - self._made_s >= REFRESH_S and not self.has_ended:
                self._make()
                self._made_s = time.monotonic()
            return self._parts

    def page(self) -> str:
        """A whole page with the present parts and the script that replaces them."""
        parts = self.parts()
        sections = [(part, name, parts[part]) for part, name in self._names]
        live = tag("p", "live", id_="live", class_="kicker", role="status")
        header = joined(live, tag("div", parts["top"], id_="top-part"))
        footer = tag("div", parts["end"], id_="end-part")
        script = tag("script", src="/live.js", defer="defer")
        return document(self._title, header, sections, footer, policy=POLICY, script=script)

    def _make(self) -> None:
        running = is_running(self._run_dir)
        title, header, sections, footer = parts_of(read_report(self._run_dir, is_running=running, now_utc=utc_now()))
        self._title, self._names = title, [(part, name) for part, name, _ in sections]
        self._parts = {"top": header, **{part: content for part, _, content in sections}, "end": footer}
        self.has_ended = not running
