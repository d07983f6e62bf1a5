"""Promise B: the hashes that PS wrote of buckets they let go and took over, paired and compared. The check is pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from elastichost.chaos.verdicts import Verdict
from elastichost.ps.audit import AUDIT_WORD, AuditLine

__all__ = ["check_hand_overs", "read_audit"]

MAX_LINE_BYTES = 1 << 20


def read_audit(run_dir: Path) -> Iterator[AuditLine]:
    """Of every PS incarnation of the run; a line that a kill cut short is left out."""
    decoder = msgspec.json.Decoder(AuditLine)
    word = AUDIT_WORD.encode()
    for path in sorted((run_dir / "logs").glob("server-*.log")):
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.startswith(word) and line.endswith(b"\n"):
                    yield decoder.decode(line[len(word) :])


def check_hand_overs(lines: Iterable[AuditLine], access: str) -> Verdict:
    """What was adopted next after a bucket was let go must be bitwise what was let go. A bucket whose owner was killed
    was not let go: what its successor then takes over is compared with nothing."""
    ordered = sorted(lines, key=lambda line: (line.epoch, line.event == "adopted"))
    released: dict[tuple[int, int, int], AuditLine] = {}
    compared, problems = 0, []
    for line in ordered:
        key = (line.supervisor, line.table, line.bucket)
        if line.event == "released":
            released[key] = line
        elif (before := released.pop(key, None)) is not None:
            compared += 1
            problems += [
                f"table {line.table}, bucket {line.bucket}: {block} changed between its release in epoch "
                f"{before.epoch} and its adoption in epoch {line.epoch}"
                for block in sorted(before.blocks.keys() | line.blocks.keys())
                if before.blocks.get(block) != line.blocks.get(block)
            ]
    if access != "served":
        return Verdict.none("B", f"{access} access: workers go on writing to rows while their bucket changes hands")
    if not compared:
        return Verdict.none("B", "buckets changed hands only by deaths: no hand-over to compare")
    return Verdict.of("B", f"{compared} buckets handed over, compared by hash", problems)
