"""`python -m elastichost`, and the `elastichost` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    from elastichost.cli import run_command_line

    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
