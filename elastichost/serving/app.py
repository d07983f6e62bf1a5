"""The routes: POST /predict, GET /healthz, GET /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from elastichost.results.preprocess import ColumnError, Prepared
from elastichost.serving import arrow_rows, telemetry
from elastichost.serving.batcher import Batcher, Scores
from elastichost.serving.follower import Follower, first_export
from elastichost.serving.json_rows import table_of_json
from elastichost.serving.loaded_export import LoadedExport
from elastichost.serving.request_body import request_body
from elastichost.serving.request_error import ErrorCode, RequestError, error_of_column
from elastichost.serving.settings import ServeSettings
from elastichost.serving.telemetry import Telemetry

__all__ = ["make_app"]

JSON = "application/json"
PREPARING_THREADS = 2


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a running application consists of."""

    settings: ServeSettings
    telemetry: Telemetry
    batcher: Batcher
    follower: Follower
    preparing: ThreadPoolExecutor


def make_app(settings: ServeSettings, loaded: list[LoadedExport] | None = None) -> Starlette:
    """The application. loaded: an export, which the application takes from the list when it starts: what else kept it
    would hold it in memory after a newer one answers. Without it the application loads that of the settings."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with _running(settings, loaded if loaded is not None else []) as parts:
            yield {"parts": parts, "header_timeout_s": settings.header_timeout_s}

    routes = [
        Route("/predict", _predict, methods=["POST"]),
        Route("/healthz", _healthz, methods=["GET"]),
        Route("/metrics", _metrics, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _of_starlette})


@asynccontextmanager
async def _running(settings: ServeSettings, loaded: list[LoadedExport]) -> AsyncIterator[_Parts]:
    if not loaded:
        loaded.append(await asyncio.to_thread(first_export, settings))
    counts = Telemetry()
    batcher = Batcher(counts, max_rows=settings.max_batch_rows, max_delay_s=settings.max_delay_s)
    follower = Follower(settings, loaded.pop(), counts)
    preparing = ThreadPoolExecutor(PREPARING_THREADS, thread_name_prefix="prepare")
    tasks = [asyncio.create_task(batcher.run()), asyncio.create_task(follower.run())]
    for task in tasks:
        task.add_done_callback(_end_if_failed)
    try:
        yield _Parts(settings, counts, batcher, follower, preparing)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in (batcher, follower):
            part.close()
        preparing.shutdown()


def _end_if_failed(task: asyncio.Task[None]) -> None:
    """A task that must not end ended by a bug: the process ends too, instead of hanging with all its clients."""
    if not task.cancelled() and (error := task.exception()) is not None:
        asyncio.get_running_loop().stop()
        raise error


async def _predict(request: Request) -> Response:
    parts: _Parts = request.state.parts
    began_s = perf_counter()
    rows = 0
    try:
        scores, encode, media_type = await _scores(request, parts)
        rows = len(scores)
        response = Response(encode(scores), media_type=media_type)
    except RequestError as error:
        response = _refusal(error)
    except ClientDisconnect:
        response = Response(status_code=400)  # nobody reads it
    parts.telemetry.count_answer(response.status_code, rows, perf_counter() - began_s)
    return response


async def _scores(request: Request, parts: _Parts) -> tuple[Scores, Callable[[Scores], bytes], str]:
    """(scores, what encodes them in the format of the request, its media type). Raises RequestError."""
    settings, counts = parts.settings, parts.telemetry
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind not in (JSON, arrow_rows.CONTENT_TYPE):
        known = f"{JSON} or {arrow_rows.CONTENT_TYPE}"
        raise RequestError(415, "unknown_content_type", f"the content type {kind!r} is not {known}", expected=known)
    async with AsyncExitStack() as stack:
        body = await stack.enter_async_context(request_body(request, settings, counts))
        # only from here on: a slow client takes no place of the queue
        if counts.in_flight >= settings.queue_requests:
            message = f"{counts.in_flight} requests wait already: try again later"
            raise RequestError(503, "busy", message, retry_after_s=1)
        counts.in_flight += 1
        stack.callback(_leave, counts)
        export = parts.follower.export
        prepared = await asyncio.get_running_loop().run_in_executor(
            parts.preparing, _prepare, body, kind, export, settings
        )
        scores = await parts.batcher.score(export, prepared)
    if kind == JSON:
        return scores, _json_of_scores, JSON
    return scores, lambda found: arrow_rows.arrow_of_scores(found, export.labels), arrow_rows.CONTENT_TYPE


def _leave(counts: Telemetry) -> None:
    counts.in_flight -= 1


def _prepare(body: bytes, kind: str, export: LoadedExport, settings: ServeSettings) -> Prepared:
    preprocessor = export.scorer.preprocessor
    if kind == JSON:
        table = table_of_json(body, preprocessor, settings.max_request_rows)
    else:
        columns = {*preprocessor.dense, *preprocessor.features}
        # In JSON an id takes two bytes at least, so an Arrow body gives no more ids than a JSON body may.
        most_ids = settings.max_body_bytes // 2
        table = arrow_rows.table_of_arrow(body, columns, settings.max_request_rows, most_ids)
    try:
        return preprocessor.prepare(table)
    except ColumnError as error:
        raise error_of_column(error) from error


def _json_of_scores(scores: Scores) -> bytes:
    return msgspec.json.encode({"scores": scores.tolist()})


async def _healthz(request: Request) -> Response:
    follower = request.state.parts.follower
    export: LoadedExport = follower.export
    facts = {
        "status": "ready",
        "export": {
            "id": export.id,
            "job": export.job,
            "format": export.format,
            "samples_trained": export.samples_trained,
            "directory": str(export.directory),
        },
        "reloads": request.state.parts.telemetry.reloads,
        "reload_problem": follower.problem or None,
    }
    return Response(msgspec.json.encode(facts), media_type=JSON)


async def _metrics(request: Request) -> Response:
    export: LoadedExport = request.state.parts.follower.export
    text = request.state.parts.telemetry.text(export.id, export.samples_trained)
    return Response(text, media_type=telemetry.CONTENT_TYPE)


def _refusal(error: RequestError) -> Response:
    headers = {"connection": "close"} if error.closes else {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    return Response(error.body(), status_code=error.status, headers=headers, media_type=JSON)


async def _of_starlette(request: Request, error: Exception) -> Response:
    """The refusal of a path or a method that is not known."""
    assert isinstance(error, HTTPException)
    code: ErrorCode = "method_not_allowed" if error.status_code == 405 else "not_found"
    response = _refusal(RequestError(error.status_code, code, f"{request.method} {request.url.path}: {error.detail}"))
    response.headers.update(error.headers or {})
    return response
