"""The job file as types: job, model, tables, training, evaluation and resources, with limits and defaults.

Every class is one section of the TOML file and every attribute one key: `job.train.batch_size` is `batch_size` of
`[train]`. Each value is checked here on its own; `rules` checks values against each other, `job` reads files, and
`explain` writes the error messages. The descriptions appear in the JSON schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elastichost.config.base import Section
from elastichost.config.sections.schedule import ScheduleSettings
from elastichost.config.values import (
    AtLeastZero,
    BuildArguments,
    BuildFunction,
    CoreCount,
    Count,
    CountFromOne,
    InitRule,
    MemoryAmount,
    NotNegative,
    Positive,
    RowCount,
    RowOptimizerName,
    Seed,
    ServerCount,
    Share,
    Strings,
    WorkerCount,
)

__all__ = [
    "DEFAULT_TABLE",
    "DenseOptimizerSettings",
    "EarlyStopSettings",
    "EvaluateSection",
    "JobSection",
    "ModelSection",
    "ResourcesSection",
    "RowOptimizerOverrides",
    "RowOptimizerSettings",
    "TableOverrides",
    "TrainSection",
]


class JobSection(Section):
    """`[job]`: the name of the job, and the seed of its random numbers."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = Field(
        default="job",
        description="Name of the job, used in messages and in the names of its directories. Default: the name of the "
        "job file.",
    )
    seed: Seed = Field(
        default=0,
        description="Seed of the initial weights and rows, of the order of shuffled data, and of the tuner.",
    )


class ModelSection(Section):
    """`[model]`: the function that builds the model, and what the model returns."""

    build: BuildFunction = Field(
        description='The function that returns the torch.nn.Module: "file.py:function", with the file relative to the '
        'job file, or "package.module:function". It is called as build(tables, num_dense, **args).'
    )
    args: BuildArguments = Field(
        default_factory=dict,
        description="Arguments that are passed to the build function: strings, numbers, booleans, lists and tables.",
    )
    outputs: Literal["logits", "probabilities", "loss"] = Field(
        default="logits",
        description='What forward returns. "logits" or "probabilities": shape [B], or [B, labels] with several labels. '
        '"loss": the tuple (loss, (loss, logits, labels)), as torchrec\'s DLRMTrain does.',
    )
    fused: bool = Field(
        default=True,
        description="Replace torch.nn.Linear, and torchrec's own dense modules of DLRM, by faster ones of the same "
        "mathematics. Subclasses of them, and what torch.compile compiled, are never replaced.",
    )


class RowOptimizerSettings(Section):
    """`train.optimizer_rows`: the optimizer of embedding rows. Each table may override it."""

    name: RowOptimizerName = Field(
        default="rowwise_adagrad",
        description='"sgd": no state. "adagrad": one sum of squared gradients for each element. "rowwise_adagrad": one '
        'sum for each row. "adam": two means for each element, and the number of updates of each row.',
    )
    lr: Positive = Field(default=0.1, description="Learning rate.")
    eps: NotNegative = Field(
        default=1e-8, description="Number that is added to the root of the squared gradients. Not used by sgd."
    )
    beta1: Share = Field(default=0.9, description="Decay of the mean of gradients. Used by adam only.")
    beta2: Share = Field(default=0.999, description="Decay of the mean of squared gradients. Used by adam only.")
    weight_decay: NotNegative = Field(
        default=0.0,
        description="A row shrinks by this number times the learning rate whenever it is updated, apart from its "
        "gradient. Rows whose ids are not in a batch do not change. 0: none.",
    )


class RowOptimizerOverrides(Section):
    """A table's `optimizer`: the settings that differ from `train.optimizer_rows`."""

    name: RowOptimizerName | None = Field(
        default=None, description="Optimizer of this table's rows. Default: `train.optimizer_rows.name`."
    )
    lr: Positive | None = Field(
        default=None, description="Learning rate of this table's rows. Default: `train.optimizer_rows.lr`."
    )
    eps: NotNegative | None = Field(
        default=None, description="`eps` of this table's optimizer. Default: `train.optimizer_rows.eps`."
    )
    beta1: Share | None = Field(
        default=None, description="`beta1` of this table's optimizer. Default: `train.optimizer_rows.beta1`."
    )
    beta2: Share | None = Field(
        default=None, description="`beta2` of this table's optimizer. Default: `train.optimizer_rows.beta2`."
    )
    weight_decay: NotNegative | None = Field(
        default=None, description="Weight decay of this table's rows. Default: `train.optimizer_rows.weight_decay`."
    )


DEFAULT_TABLE = "default"  # the name of the section whose settings apply to every table


class TableOverrides(Section):
    """`[tables.<name>]`: the settings of one table that differ from `[tables.default]`. Every categorical column that
    no table names in `features` has a table with the column's name."""

    features: Strings | None = Field(
        default=None,
        description="Categorical columns that share this table. Default: the column with the table's name. Not allowed "
        "in [tables.default].",
    )
    dim: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="Dimension of the embedding vectors. Default: 16."
    )
    rows: RowCount | None = Field(
        default=None,
        description='Number of rows. An int id is then the row number, a string id is hashed to a row. "dynamic": a '
        'row is made when an id is first seen. Default: "dynamic".',
    )
    init: InitRule | None = Field(
        default=None,
        description='Initial values of a row: "uniform(low, high)" or "constant(value)". '
        'Default: "uniform(-0.01, 0.01)".',
    )
    out_of_range: Literal["error", "modulo"] | None = Field(
        default=None,
        description='What happens to an int id outside [0, rows). "error": the job ends. "modulo": the id is taken '
        'modulo rows. Only for tables with a number of rows. Default: "error".',
    )
    pooling: Literal["sum", "mean"] | None = Field(
        default=None, description='How the vectors of several ids in one sample are combined. Default: "sum".'
    )
    precision: Literal["float32", "bfloat16"] | None = Field(
        default=None,
        description='Type in which rows are stored. The state of the optimizer is always float32. Default: "float32".',
    )
    optimizer: RowOptimizerOverrides | None = Field(
        default=None,
        description="`tables.NAME.optimizer`: settings that differ from `train.optimizer_rows` for this table.",
    )
    admit_after: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="How many times an id must be seen in training before it gets a row. Only for dynamic tables. "
        "Default: 1.",
    )
    evict_after_samples: Count | None = Field(
        default=None,
        description="A row is dropped when its id is not seen in this number of trained samples. 0: never. Only for "
        "dynamic tables. Default: 0.",
    )


class DenseOptimizerSettings(Section):
    """`train.optimizer_dense`: the optimizer of all parameters that are not embedding rows."""

    name: Literal["sgd", "adagrad", "adam", "adamw"] = Field(
        default="adam", description="The optimizer; each is computed as torch.optim computes it."
    )
    lr: Positive = Field(default=1e-3, description="Learning rate.")
    beta1: Share = Field(default=0.9, description="Decay of the mean of gradients. Used by adam and adamw.")
    beta2: Share = Field(default=0.999, description="Decay of the mean of squared gradients. Used by adam and adamw.")
    eps: NotNegative = Field(
        default=1e-8, description="Number that is added to the denominator of a step. Not used by sgd."
    )
    weight_decay: NotNegative = Field(
        default=0.0,
        description="L2 penalty: this number times the parameter is added to the gradient. With adamw the parameter "
        "shrinks by this number times the learning rate instead, apart from the gradient. 0: none.",
    )
    momentum: Share = Field(default=0.0, description="Momentum of sgd. 0: none. Used by sgd only.")


class TrainSection(Section):
    """`[train]`: how the model is trained: epochs, batches, synchronisation and optimizers."""

    epochs: CountFromOne = Field(default=1, description="Number of passes over the training data.")
    batch_size: Annotated[int, Field(ge=1, le=1_048_576)] = Field(
        default=512,
        description='Samples in a batch of one worker. With mode "sync": samples in a step of all workers together.',
    )
    mode: Literal["async", "bounded", "sync"] = Field(
        default="async",
        description='"async": workers never wait for each other. "bounded": no worker is more than `staleness` batches '
        'ahead of the slowest. "sync": all workers compute one update together, and the result has the same bits for '
        "any number of workers and parameter servers.",
    )
    staleness: Count = Field(
        default=4,
        description='With mode "bounded": how many batches a worker may be ahead of the slowest worker.',
    )
    micro_batches: Annotated[int, Field(ge=1, le=128)] = Field(
        default=4,
        description='With mode "sync": the number of parts that a step is cut into. More workers than this number do '
        "not make a step faster.",
    )
    access: Literal["auto", "direct", "served"] = Field(
        default="auto",
        description='How workers reach embedding rows. "direct": in shared memory. "served": by messages to the '
        'parameter servers. "auto": in shared memory where the rows are on the worker\'s host, else by messages. '
        'With mode "sync", rows are always served.',
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description='What the dense part of the model computes in. "bfloat16" is several times as fast for large nets '
        "on CPUs with AMX or AVX512-BF16, and on GPUs with tensor cores. Parameters, their gradients and the optimizer "
        "stay float32. A CPU without these units refuses it. For embedding rows see `tables.NAME.precision`.",
    )
    any_cpu: bool = Field(
        default=False,
        description='With mode "sync": continue a run on a CPU with other features than the first one. The model is as '
        "good, but its bits differ. false: the run ends with an error instead.",
    )
    optimizer_rows: RowOptimizerSettings = RowOptimizerSettings()
    optimizer_dense: DenseOptimizerSettings = DenseOptimizerSettings()
    clip_norm: NotNegative = Field(
        default=0.0,
        description="Largest Euclidean norm of the gradient of all dense parameters together, for one batch (in sync "
        "mode one step). A longer gradient is scaled down to it. Gradients of embedding rows are not clipped. 0: no "
        "limit.",
    )
    schedule: ScheduleSettings = ScheduleSettings()
    non_finite: Literal["stop", "skip", "roll_back"] = Field(
        default="stop",
        description='What happens when the loss or a gradient of a batch is NaN or infinite. "stop": the job ends with '
        'an error. "skip": the batch is left out. "roll_back": the run returns to its newest checkpoint and leaves the '
        "batch out.",
    )

    @property
    def largest_part(self) -> int:
        """The largest number of samples of which a worker computes gradients at a time: a batch, or in sync mode a
        micro-batch."""
        return -(-self.batch_size // self.micro_batches) if self.mode == "sync" else self.batch_size


class EarlyStopSettings(Section):
    """`evaluate.early_stop`: when training ends early because the test data shows no improvement."""

    metric: str = Field(
        default="auc",
        description='The figure that is compared: one of `evaluate.metrics`, "auc" or "logloss". With several labels '
        'it is the mean over them; "auc[LABEL]" is the figure of one label.',
    )
    patience: Count = Field(
        default=0,
        description="Training ends after this number of evaluations in a row without a better metric. 0: never.",
    )


class EvaluateSection(Section):
    """`[evaluate]`: when the model is evaluated on the test data. It is always evaluated at the end of training."""

    every_samples: Count = Field(
        default=0,
        description="Evaluate each time this number of samples has been trained. 0: not within an epoch. With "
        "`early_stop.patience` or `checkpoint.keep_best`, the model is also evaluated at the end of each epoch.",
    )
    metrics: Strings = Field(
        default=("auc", "logloss"),
        description='Metrics of the test data: "auc", "logloss", "gauc(COLUMN)", "ndcg@K(COLUMN)", "recall@K(COLUMN)", '
        'or "file.py:function" of your own, called as function(probabilities, labels, weights). COLUMN has ids; it '
        "need not be a feature. `auc`, `logloss`, `normalised_entropy` and `calibration` are always computed.",
    )
    better: dict[str, Literal["higher", "lower"]] = Field(
        default_factory=dict,
        description='For functions of your own: whether a "higher" or a "lower" value is better. It must be said of '
        "a function that an early stop or `checkpoint.keep_best` compares.",
    )
    early_stop: EarlyStopSettings = EarlyStopSettings()


class ResourcesSection(Section):
    """`[resources]`: how much of the host the job may use, and how many processes it has."""

    cores: CoreCount = Field(
        default="all",
        description='CPU cores that the job may use: "all", a number N (the first N cores), or [min, max], of which '
        "max counts. At most the cores of the host.",
    )
    memory: MemoryAmount = Field(
        default="80%",
        description="Memory that rows, checkpoint copies and processes of the job may use together on one host: a size "
        'like "4GiB", a number of bytes, or a share of the host\'s memory like "80%".',
    )
    most_without_row: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01,
        description="Largest share of the ids looked up in training that may have no row because memory is full. "
        'Above it the run ends as "incomplete", with exit code 1.',
    )
    workers: WorkerCount = Field(
        default="auto",
        description='Number of workers: "auto" (the tuner decides), a fixed number, or [min, max] for the tuner. With '
        'GPUs "auto" means one for each; workers beyond the number of GPUs train on the CPU.',
    )
    servers: ServerCount = Field(
        default="auto",
        description='Number of parameter servers: "auto" (the tuner decides), a fixed number, or [min, max] for the '
        "tuner.",
    )
    hosts: Annotated[int, Field(ge=1, le=16)] = Field(
        default=1,
        description="Number of hosts. More than 1 emulates hosts on this machine, each with its own rows, for "
        "tests. Other machines are named with `run --hosts` instead.",
    )
    gpus: AtLeastZero = Field(
        default=0,
        description='Number of GPUs for the workers, one worker each: 0 (the CPU trains), "auto" (all within '
        "CUDA_VISIBLE_DEVICES), a number, or [min, max]. The run does not start with fewer than the number or min; it "
        "goes on when it loses one.",
    )
    gpu_memory: MemoryAmount = Field(
        default="90%",
        description='Memory of each GPU that its worker may use: a share like "90%", a size like "8GiB", or a number '
        "of bytes.",
    )
    model_memory: Literal["host", "gpu"] = Field(
        default="host",
        description='Memory with the model that a GPU trains: "host" (the GPU uses rows of fixed tables in shared '
        'memory, PS update the dense part), or "gpu" (its own memory, which outlives its worker; one worker).',
    )
    restarts: Count = Field(
        default=3,
        description="How many times each process may end unexpectedly and be restarted within `restart_window_s`. With "
        "one more the job fails.",
    )
    restart_window_s: Positive = Field(
        default=60.0, description="Time in seconds within which the restarts of a process are counted."
    )
