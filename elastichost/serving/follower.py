"""Follows the directory of an export: loads a newer one beside the old, tries it, and swaps.

An export that does not load is tried again after growing pauses: there may have been no memory for two, or its files
were still being copied. Worker processes write the directory that answers to a file they share, so that one that
starts while the newest export is broken serves what the others serve.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elastichost.atomic_write import cause_words, write_atomically
from elastichost.errors import ElastichostError
from elastichost.serving.loaded_export import DirectoryVersion, LoadedExport, load_export, version_of
from elastichost.serving.settings import ServeSettings
from elastichost.serving.telemetry import Telemetry

__all__ = ["Follower", "first_export"]

MISSING_LOOKS = 3  # a directory that is replaced by two renames is gone for a moment
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0  # before an export that did not load is tried again

logger = logging.getLogger("elastichost.serving")


def first_export(settings: ServeSettings) -> LoadedExport:
    """The export that a process begins with: that of the settings, or if it does not load, the one that the other
    worker processes serve. Raises ElastichostError."""
    try:
        return load_export(Path(settings.directory), refuse_nulls=settings.refuse_nulls)
    except ElastichostError:
        if not (directory := _directory_of_others(settings)):
            raise
        logger.error("%s does not load: %s is served, as by the other workers", settings.directory, directory)
        return load_export(Path(directory), refuse_nulls=settings.refuse_nulls)


def _directory_of_others(settings: ServeSettings) -> str:
    """The directory of the export that other worker processes serve; "": it is not known."""
    if not settings.answers_file:
        return ""
    try:
        return Path(settings.answers_file).read_text(encoding="utf-8")
    except OSError as error:
        logger.warning("%s cannot be read: %s", settings.answers_file, cause_words(error))
        return ""


class Follower:
    """export: answers requests now. problem: why a newer export does not; "": there is none."""

    def __init__(self, settings: ServeSettings, export: LoadedExport, telemetry: Telemetry) -> None:
        self.export = export
        self.problem = ""
        self._settings, self._telemetry = settings, telemetry
        self._directory, self._refuse_nulls = Path(settings.directory), settings.refuse_nulls
        self._refused: DirectoryVersion | None = None
        self._again_s = 0.0  # when the refused one is tried again
        self._pause_s = FIRST_PAUSE_S
        self._looks_without = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")

    async def run(self) -> None:
        """Looks at the directory until it is cancelled."""
        while True:
            await asyncio.sleep(self._settings.follow_s)
            await self.look()

    async def look(self) -> None:
        """Looks once, and loads what is new."""
        loop = asyncio.get_running_loop()
        version = await loop.run_in_executor(self._thread, version_of, self._directory)
        self._looks_without = 0 if version is not None else self._looks_without + 1
        if version is None:
            if self._looks_without == MISSING_LOOKS:
                self._report(f"there is no export at {self._directory} any more")
            return
        if version == self.export.version:
            self.problem, self._refused = "", None
            return
        if version != self._refused:
            self._pause_s = FIRST_PAUSE_S
        elif loop.time() < self._again_s:
            return
        try:
            found = await loop.run_in_executor(
                self._thread, lambda: load_export(self._directory, refuse_nulls=self._refuse_nulls)
            )
        except ElastichostError as error:
            is_new = version != self._refused
            self._refused, self._again_s = version, loop.time() + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            if is_new or error.message != self.problem:
                self._report(error.message)
            return
        self.export, self.problem, self._refused = found, "", None
        if self._settings.answers_file:
            self._tell_workers(Path(self._settings.answers_file))
        self._telemetry.reloads += 1
        logger.info("export %s (%d samples) answers from now on", found.id, found.samples_trained)

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _tell_workers(self, answers: Path) -> None:
        """Writes which export answers. A failure does not end this process, which has the export in memory: only worker
        processes that start later may need the file."""
        directory = str(self.export.directory)
        try:
            write_atomically(answers, directory.encode(), has_several_writers=True)
        except OSError as error:
            told = "%s cannot be written: %s; later worker processes do not find %s"
            logger.warning(told, answers, cause_words(error), directory)

    def _report(self, problem: str) -> None:
        self.problem = problem
        self._telemetry.failed_reloads += 1
        logger.error("%s; export %s goes on", problem, self.export.id)
