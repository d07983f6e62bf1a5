"""`python -m benchmarks [NAME] ...`: runs one benchmark; without a name, `access-speed`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.registry import BENCHMARKS, run

__all__ = ["main"]

USUAL = "access-speed"


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0].startswith("-"):
        return run(USUAL, given)
    name, *others = given
    if name not in BENCHMARKS:
        print(f"unknown benchmark {name!r}: choose from {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    return run(name, others)


if __name__ == "__main__":
    sys.exit(main())
