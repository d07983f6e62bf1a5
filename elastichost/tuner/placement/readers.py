"""Which reader processes are to run: those of every worker of the plan, and of every other worker that still trains.
Pure.

The plan itself has no readers: they follow their workers. A reader runs on the host of its worker, on the cores that
the worker does not train on, or on all cores of the worker if there are no others.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from elastichost.config.job import JobSpec
from elastichost.plan import Plan, ProcessSpec, reader_index

__all__ = ["readers_of", "with_readers"]


def with_readers(plan: Plan, job: JobSpec, others: Iterable[ProcessSpec] = ()) -> Plan:
    """The plan with its readers. others: workers that still train and may not be in the plan. A plan without workers
    gets no readers: its workers train nothing any more."""
    if job.emulate.enabled or not plan.workers:
        return plan
    workers = {spec.index: spec for spec in (*others, *plan.workers)}
    readers = tuple(reader for _, spec in sorted(workers.items()) for reader in readers_of(spec, job))
    return msgspec.structs.replace(plan, processes=(*plan.processes, *readers))


def readers_of(worker: ProcessSpec, job: JobSpec) -> tuple[ProcessSpec, ...]:
    """The readers of one worker."""
    spare = worker.cores[worker.threads :]
    count = job.data.input.reader_count(has_gpu=worker.gpu is not None, spare_cores=len(spare))
    return tuple(
        ProcessSpec("reader", reader_index(worker.index, number), spare or worker.cores, 1, host=worker.host)
        for number in range(count)
    )
