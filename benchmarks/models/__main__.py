"""`python -m benchmarks.models`: the same as `elastichost bench models`."""

from __future__ import annotations

import sys

from benchmarks.models.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
