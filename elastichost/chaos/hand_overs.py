"""The check of promise B: compares the hashes that PS wrote when they released and adopted buckets. The check is
pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from elastichost.chaos.verdicts import Verdict
from elastichost.ps.audit import AUDIT_WORD, AuditLine

__all__ = ["check_hand_overs", "read_audit"]

MAX_LINE_BYTES = 1 << 20


def read_audit(run_dir: Path) -> Iterator[AuditLine]:
    """The audit lines of every PS incarnation of the run. An incomplete last line, which a kill can leave, is
    skipped."""
    decoder = msgspec.json.Decoder(AuditLine)
    word = AUDIT_WORD.encode()
    for path in sorted((run_dir / "logs").glob("server-*.log")):
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.startswith(word) and line.endswith(b"\n"):
                    yield decoder.decode(line[len(word) :])


def check_hand_overs(lines: Iterable[AuditLine], access: str) -> Verdict:
    """The verdict on promise B: when a bucket is adopted after it was released, both hashes must be equal. A bucket of
    a PS that was killed was not released, so its next adoption is not compared. Not applicable unless `access` is
    "served"."""
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
        return Verdict.none("B", f"{access} access: workers change rows during a hand-over")
    if not compared:
        return Verdict.none("B", "no bucket was released and then adopted, so there is no hand-over to compare")
    return Verdict.of("B", f"compared the hashes of {compared} buckets before and after a hand-over", problems)
