"""Scores requests together that wait at the same time: one call of the model for many small requests.

A batch is what waits when the model becomes free, so batches grow with the load and a lone request waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.results.preprocess import Prepared
from elastichost.serving.loaded_export import LoadedExport
from elastichost.serving.request_error import RequestError
from elastichost.serving.telemetry import Telemetry

__all__ = ["Batcher"]

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Waiting:
    export: LoadedExport
    prepared: Prepared
    answer: asyncio.Future[Scores]

    @property
    def rows(self) -> int:
        return len(self.prepared.dense)


class Batcher:
    """Belongs to one event loop. The model runs in one thread, which uses torch's own threads."""

    def __init__(self, telemetry: Telemetry, *, max_rows: int, max_delay_s: float) -> None:
        self._telemetry = telemetry
        self._max_rows, self._max_delay_s = max_rows, max_delay_s
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def score(self, export: LoadedExport, prepared: Prepared) -> Scores:
        """float32 [rows], or [rows, labels]. Raises RequestError (500) when the model fails."""
        if not len(prepared.dense):
            labels = len(export.labels)
            return np.empty((0,) if labels == 1 else (0, labels), dtype=np.float32)
        waiting = _Waiting(export, prepared, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.answer

    async def run(self) -> None:
        """Scores until it is cancelled."""
        while True:
            await self._arrived.wait()
            if self._max_delay_s:
                await self._wait_for_others()
            batch = self._next_batch()
            if batch:
                await self._score(batch)
            del batch  # while this waits for a request, it would keep the export of the last ones in memory
            # set again where requests wait that came while `_wait_for_others` had cleared it
            self._arrived.set() if self._waiting else self._arrived.clear()

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    async def _wait_for_others(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._max_delay_s
        while sum(one.rows for one in self._waiting) < self._max_rows:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(until_s):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _next_batch(self) -> list[_Waiting]:
        """The first request and those behind it of the same export, up to the greatest number of rows."""
        batch: list[_Waiting] = []
        rows = 0
        while self._waiting:
            first = self._waiting[0]
            if first.answer.done():  # its client has gone
                self._waiting.popleft()
                continue
            if batch and (first.export is not batch[0].export or rows + first.rows > self._max_rows):
                break
            batch.append(self._waiting.popleft())
            rows += first.rows
        return batch

    async def _score(self, batch: Sequence[_Waiting]) -> None:
        self._telemetry.batches += 1
        export, parts = batch[0].export, [one.prepared for one in batch]
        run = asyncio.get_running_loop().run_in_executor(self._thread, _scores_of, export, parts)
        (found,) = await asyncio.gather(run, return_exceptions=True)
        if isinstance(found, BaseException) and not isinstance(found, Exception):
            raise found
        if not isinstance(found, Exception):
            for one, scores in zip(batch, found, strict=True):
                _answer(one, scores)
        elif len(batch) > 1:  # one of them makes the model fail: it alone gets an error
            for one in batch:
                await self._score([one])
        else:
            reason = next(iter(str(found).splitlines()), "")
            message = f"the model failed: {type(found).__name__}: {reason[:200]}"
            _answer(batch[0], RequestError(500, "model_failed", message))


def _scores_of(export: LoadedExport, parts: Sequence[Prepared]) -> list[Scores | RequestError]:
    """The answer to each part, by one call of the model. Raises whatever the model raises."""
    scores = export.scorer.scores(Prepared.join(parts))
    stops = np.cumsum([len(part.dense) for part in parts])
    return [_checked(one) for one in np.split(scores, stops[:-1])]


def _checked(scores: Scores) -> Scores | RequestError:
    is_finite = np.isfinite(scores)
    if is_finite.all():
        return scores
    row = int(np.argwhere(~is_finite)[0][0])
    return RequestError(500, "model_failed", f"the score of row {row} is not a finite number", row=row)


def _answer(waiting: _Waiting, answer: Scores | RequestError) -> None:
    if waiting.answer.done():
        return
    if isinstance(answer, RequestError):
        waiting.answer.set_exception(answer)
    else:
        waiting.answer.set_result(answer)
