"""Sends values to Weights & Biases, or keeps them for `wandb sync`."""

from __future__ import annotations

import uuid
from typing import Any

from elastichost.checkpoint.places import read_identity
from elastichost.loggers.logger import LoggerError, Opened, Value

__all__ = ["WandBLogger"]


class WandBLogger:
    """One run of the project for one run; a resumed run continues it. The horizontal axis of all values is samples."""

    def __init__(self, opened: Opened) -> None:
        try:
            import wandb
        except ImportError as error:
            raise LoggerError(
                f"the logger wandb needs its package: {error}", hint="pip install 'elastichost[wandb]'"
            ) from error
        settings = opened.job.logging.wandb
        # The same at each try: a start that fails after its request has arrived makes no second record.
        identity = read_identity(opened.run_dir)
        self._key = opened.key or (identity.run_id if identity is not None else uuid.uuid4().hex)
        self._run: Any = wandb.init(
            project=settings.project,
            mode=settings.mode,
            dir=str(opened.run_dir),
            id=self._key,
            name=opened.name,
            resume="allow",
            config=opened.job.model_dump(exclude_unset=True),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="samples")

    @property
    def key(self) -> str:
        return self._key

    def log(self, values: list[Value]) -> None:
        for one in values:
            self._run.log({one.name: one.value, "samples": one.samples, "unix_s": one.unix_s})

    def close(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status in ("done", "stopped") else 1)
