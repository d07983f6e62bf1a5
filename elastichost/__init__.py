"""elastichost: an elastic parameter-server runtime that trains recommendation models on one workstation.

The layers of the package, from the top down; a module imports only from its own layer and from lower ones:

    cli, __main__                           the command line
    reporting                               `report`
    chaos, emulation                        injected faults | processes that wait instead of computing
    dispatcher                              many jobs on one host
    results, supervisor                     export and predict | starts, measures and repairs the processes of a job
    runs                                    a run on disk: its typed events, its decisions, its result
    ps, worker, tuner                       parameter server | trains the user's model | chooses plans
    arena, wire, datasets, checkpoint       rows in shared memory | messages | readers | a run's rows on disk
    user_model, quality                     the user's model | AUC, log loss, calibration
    config, history, host                   the job file | records of finished jobs | this machine
    plan, sharding, metrics, resources      which processes to run | id to bucket to PS | status of a run | cores, bytes
    batches, micro_batches                  where batches end | how sync mode cuts a step
    specs, clock, errors                    tables | time as an argument | typed errors
    human_readable, atomic_write            numbers for people | complete writes on disks that may be full

`models` is outside these layers: plain torchrec models that import nothing of elastichost.

The names below load on first use, so that `import elastichost` imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec, load_job
    from elastichost.errors import ElastichostError, ExitCode
    from elastichost.metrics import ProcessStatus, RunStatus
    from elastichost.runs.events import JournalLine
    from elastichost.runs.observer import RunObserver
    from elastichost.supervisor import RunResult, run_job

__version__ = "0.1.0"

__all__ = [
    "ElastichostError",
    "ExitCode",
    "JobSpec",
    "JournalLine",
    "ProcessStatus",
    "RunObserver",
    "RunResult",
    "RunStatus",
    "__version__",
    "load_job",
    "run_job",
]

_HOMES = {
    "ElastichostError": "errors",
    "ExitCode": "errors",
    "JobSpec": "config.job",
    "JournalLine": "runs.events",
    "ProcessStatus": "metrics",
    "RunObserver": "runs.observer",
    "RunResult": "supervisor",
    "RunStatus": "metrics",
    "load_job": "config.job",
    "run_job": "supervisor",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
