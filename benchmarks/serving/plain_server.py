"""FastAPI and an eager torchrec model: what one writes around an export in an afternoon. One process, no batches.

    python -m benchmarks.serving.plain_server DIR PORT

It prints a line when it is ready.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from elastichost.results.preprocess import Preprocessor
from elastichost.results.reader import load_model, model_inputs

__all__ = ["make_app"]


class Rows(BaseModel):
    """The body of a request."""

    rows: list[dict[str, Any]]


class Scores(BaseModel):
    """The answer."""

    scores: list[float]


def make_app(directory: str) -> FastAPI:
    """The application for an export of format torchrec."""
    app, model, preprocessor = FastAPI(), load_model(directory), Preprocessor(directory)

    @app.post("/predict")
    def predict(body: Rows) -> Scores:
        dense, sparse = model_inputs(preprocessor, pa.Table.from_pylist(body.rows))
        with torch.inference_mode():
            return Scores(scores=torch.sigmoid(model(dense, sparse)).tolist())

    return app


def main() -> None:
    directory, port = sys.argv[1:]
    server = uvicorn.Server(uvicorn.Config(make_app(directory), port=int(port), log_level="error", access_log=False))
    print("ready", flush=True)
    server.run()


if __name__ == "__main__":
    main()
