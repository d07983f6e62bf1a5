"""Name of a logger -> its class."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from elastichost.loggers.logger import Logger, Opened

__all__ = ["open_logger"]

_HOMES = {
    "csv": ("csv_log", "CsvLogger"),
    "mlflow": ("mlflow", "MLflowLogger"),
    "tensorboard": ("tensorboard", "TensorBoardLogger"),
    "wandb": ("wandb", "WandBLogger"),
}


def open_logger(name: str, opened: Opened) -> Logger:
    """Opens the logger with this name (`LOGGERS` of the job file). Raises LoggerError when its package is missing, and
    whatever the package raises when its server cannot be reached."""
    module, kind = _HOMES[name]
    make: Callable[[Opened], Logger] = getattr(import_module(f"elastichost.loggers.{module}"), kind)
    return make(opened)
