"""A process that counts in shared memory at a given rate, and ends after a given count."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.peers.common import Counter, enter_role


def main() -> None:
    counter, batch, fails_after = Counter(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    enter_role("worker-0")
    for number in range(1_000_000):
        if number == fails_after:
            raise SystemExit("no more of this")
        counter.add(0, batch)
        deadline_s = time.process_time() + 0.005
        while time.process_time() < deadline_s:
            pass


if __name__ == "__main__":
    main()
