"""`tests.system.supervise` with another planner: each plan has the requested number of PS, but other PS than before, so
that all buckets and the dense vector move. `python -m tests.system.supervise_and_move JOB RUN_DIR`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from elastichost.plan import Plan
from elastichost.supervisor.controllers import plan as plan_controller
from elastichost.tuner.placement.resize import resized_plan
from tests.system.supervise import main


def moved_plan(plan: Plan, reason: str, **sizes: Any) -> Plan:
    resized = resized_plan(plan, reason, **sizes)
    first = 1 + max(spec.index for spec in plan.servers)
    moved = (msgspec.structs.replace(spec, index=first + number) for number, spec in enumerate(resized.servers))
    return Plan((*resized.workers, *moved), plan.access, reason)


if __name__ == "__main__":
    plan_controller.resized_plan = moved_plan  # type: ignore[attr-defined]
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), None))
