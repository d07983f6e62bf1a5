"""The entry point of `python -m elastichost` and of the `elastichost` command."""

from __future__ import annotations

import os
import sys

# Must be set before numpy is imported. The supervisor solves only small linear systems, and the workers need the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    from elastichost.host.environment import enter_utf8_mode

    enter_utf8_mode()
    from elastichost.cli import run_command_line

    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
