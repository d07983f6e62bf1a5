"""Writes values to event files of TensorBoard."""

from __future__ import annotations

from elastichost.config.job import to_toml
from elastichost.loggers.logger import LoggerError, Opened, Value

__all__ = ["TensorBoardLogger"]


class TensorBoardLogger:
    """One event file for each time that the run was started or resumed; TensorBoard shows them as one run. Values are
    scalars by samples; the settings of the job are a text."""

    key = ""

    def __init__(self, opened: Opened) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise LoggerError(
                f"the logger tensorboard needs its package: {error}", hint="pip install 'elastichost[tensorboard]'"
            ) from error
        place = opened.run_dir / (opened.job.logging.tensorboard.directory or "tensorboard")
        self._writer = SummaryWriter(str(place))
        self._writer.add_text("job", f"```toml\n{to_toml(opened.job)}\n```", 0)

    def log(self, values: list[Value]) -> None:
        for one in values:
            self._writer.add_scalar(one.name, one.value, one.samples, walltime=one.unix_s)
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.add_text("status", status, 0)
        self._writer.close()
