"""elastichost: an elastic parameter-server runtime that trains recommendation models on one workstation.

The layers of the package, from the top down; a module imports only from its own layer and from lower ones:

    api                                     the Python interface: train, start, Run
    cli, __main__                           the command line
    web                                     the page of a run in the browser
    reporting                               `report`
    chaos, emulation                        injected faults | processes that wait instead of computing
    search                                  the best values of settings, by many trials at a time
    dispatcher, serving                     many jobs on one host | scores of an export over HTTP
    loggers, results, supervisor            experiment loggers | export and predict | runs the processes of a job
    runs                                    a run on disk: its typed events, its decisions, its result
    ps, worker, tuner                       parameter server | trains the user's model | chooses plans
    arena, wire, datasets, checkpoint       rows in shared memory | messages | readers | a run's rows on disk
    gpu, user_model, quality                kernels for a GPU | the user's model | AUC, log loss, calibration
    config, history, host                   the job file | records of jobs | this machine
    plan, sharding, metrics, resources      which processes to run | id to bucket to PS | status of a run | cores, bytes
    batches, micro_batches                  where batches end | how sync mode cuts a step
    specs, clock, errors, run_files         tables | time as an argument | typed errors | files of a run
    human_readable, atomic_write            numbers for people | complete writes on disks that may be full
    measurement_database                    SQLite files that may be damaged

`models` is outside these layers: plain torchrec models that import nothing of elastichost.

The names below load on first use, so that `import elastichost` imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastichost import errors, loggers
    from elastichost.api.callbacks import Callback
    from elastichost.api.handle import RunHandle
    from elastichost.api.job import Job
    from elastichost.api.rows import from_iterable
    from elastichost.api.run import Run
    from elastichost.api.sections import Data, Table
    from elastichost.api.training import resume, start, train
    from elastichost.errors import ElastichostError

__version__ = "0.1.0"

__all__ = [
    "Callback",
    "Data",
    "ElastichostError",
    "Job",
    "Run",
    "RunHandle",
    "Table",
    "__version__",
    "errors",
    "from_iterable",
    "loggers",
    "resume",
    "start",
    "train",
]

_HOMES = {
    "Callback": "api.callbacks",
    "Data": "api.sections",
    "ElastichostError": "errors",
    "Job": "api.job",
    "Run": "api.run",
    "RunHandle": "api.handle",
    "Table": "api.sections",
    "from_iterable": "api.rows",
    "resume": "api.training",
    "start": "api.training",
    "train": "api.training",
}


def __getattr__(name: str) -> Any:
    if name in ("errors", "loggers"):
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
