"""The section [logging] of the job file: to which experiment loggers the learning curve and the evaluations go."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from elastichost.config.base import Section
from elastichost.config.values import NotNegative, string_tuple

__all__ = ["CSV", "LOGGERS", "PACKAGES", "LoggerName", "LoggingSection", "MLflow", "TensorBoard", "WandB"]

LoggerName = Literal["csv", "mlflow", "tensorboard", "wandb"]
LOGGERS: tuple[str, ...] = get_args(LoggerName)
PACKAGES = {"mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}  # that a logger needs


class CSV(Section):
    """`logging.csv`: a CSV file with a line for each value: samples, name, value, unix_s."""

    file: str = Field(default="", description='The file. "": log.csv in the run directory.')


class TensorBoard(Section):
    """`logging.tensorboard`: event files for TensorBoard. Needs `pip install elastichost[tensorboard]`."""

    directory: str = Field(default="", description='The log directory. "": tensorboard in the run directory.')


class MLflow(Section):
    """`logging.mlflow`: a run of an MLflow server. Needs `pip install elastichost[mlflow]`."""

    uri: str = Field(
        default="", description='Address of the tracking server. "": what MLFLOW_TRACKING_URI says, else ./mlruns.'
    )
    experiment: str = Field(default="elastichost", description="Name of the experiment; it is made if it is missing.")
    run_name: str = Field(default="", description='Name of the run. "": the name of the run directory.')


class WandB(Section):
    """`logging.wandb`: a run of Weights & Biases. Needs `pip install elastichost[wandb]`."""

    project: str = Field(default="elastichost", description="Name of the project.")
    mode: Literal["online", "offline"] = Field(
        default="online", description='"offline": values are kept in the run directory; `wandb sync` sends them.'
    )


class LoggingSection(Section):
    """`[logging]`: to which experiment loggers a run writes its losses, evaluations and settings."""

    to: Annotated[tuple[LoggerName, ...], BeforeValidator(string_tuple)] = Field(
        default=(),
        description='Loggers of the run: "csv", "mlflow", "tensorboard", "wandb". Each is a process of its own that '
        "reads the files of the run, so one that is slow or cannot be reached neither delays training nor loses a "
        "value.",
    )
    finish_s: NotNegative = Field(
        default=30.0,
        description="How long the end of a run waits for its loggers. `elastichost log RUN` sends what is then still "
        "missing.",
    )
    csv: CSV = CSV()
    mlflow: MLflow = MLflow()
    tensorboard: TensorBoard = TensorBoard()
    wandb: WandB = WandB()
