"""Experiment loggers: what a run measures, sent to a CSV file, TensorBoard, MLflow or Weights & Biases.

Modules:
    logger       the interface of a logger, and the values that it gets
    delivery     reads a run, sends every value once, and remembers how far it has got
    registry     name -> logger
    csv_log, tensorboard, mlflow, wandb    one logger each
    process      the program of a logger's process

Each logger of a run is a process. It follows the files of the run and keeps its position in a file, so a logger that is
slow, or killed, or whose server cannot be reached costs the run nothing and loses no value.
"""

from __future__ import annotations

from elastichost.config.sections.loggers import CSV, MLflow, TensorBoard, WandB

__all__ = ["CSV", "MLflow", "TensorBoard", "WandB"]
