"""`tests.system.supervise` with replaced event sentences: `... JOB RUN_DIR [RESUME_FROM]`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.system.reworded import reword
from tests.system.supervise import main

if __name__ == "__main__":
    reword()
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None))
