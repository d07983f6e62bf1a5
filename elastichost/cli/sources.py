"""How a verb waits for files at addresses, and what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from elastichost.datasets.sources.single_requests import RequestPolicy
    from elastichost.wire.control_work import SourceTroubleMsg

__all__ = ["patient_requests"]

PATIENCE_S = 60.0  # without a byte


def patient_requests(out: Console) -> RequestPolicy:
    """Requests that are made again for a minute, with a line on `out` meanwhile."""
    from elastichost.datasets.sources.single_requests import PatientPolicy

    return PatientPolicy(PATIENCE_S, lambda trouble: out.print(_words(trouble), style="yellow", soft_wrap=True))


def _words(trouble: SourceTroubleMsg) -> str:
    if trouble.trouble == "recovered":
        return f"{trouble.source} gives bytes again"
    return f"{trouble.source} gives no bytes ({trouble.error}): waiting for it"
