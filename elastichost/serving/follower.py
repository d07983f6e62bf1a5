"""Follows the directory of an export: loads a newer one beside the old, tries it, and swaps."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elastichost.errors import ElastichostError
from elastichost.serving.loaded_export import DirectoryVersion, LoadedExport, load_export, version_of
from elastichost.serving.telemetry import Telemetry

__all__ = ["Follower"]

MISSING_LOOKS = 3  # a directory that is replaced by two renames is gone for a moment

logger = logging.getLogger("elastichost.serving")


class Follower:
    """export: answers requests now. problem: why a newer export does not; "": there is none."""

    def __init__(
        self, directory: Path, export: LoadedExport, telemetry: Telemetry, *, refuse_nulls: bool, follow_s: float
    ) -> None:
        self.export = export
        self.problem = ""
        self._directory, self._telemetry = directory, telemetry
        self._refuse_nulls, self._follow_s = refuse_nulls, follow_s
        self._refused: DirectoryVersion | None = None
        self._looks_without = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")

    async def run(self) -> None:
        """Looks at the directory until it is cancelled."""
        while True:
            await asyncio.sleep(self._follow_s)
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
        if version == self._refused:
            return
        try:
            found = await loop.run_in_executor(
                self._thread, lambda: load_export(self._directory, refuse_nulls=self._refuse_nulls)
            )
        except ElastichostError as error:
            self._refused = version
            self._report(error.message)
            return
        self.export, self.problem, self._refused = found, "", None
        self._telemetry.reloads += 1
        logger.info("export %s (%d samples) answers from now on", found.id, found.samples_trained)

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _report(self, problem: str) -> None:
        self.problem = problem
        self._telemetry.failed_reloads += 1
        logger.error("%s; export %s goes on", problem, self.export.id)
