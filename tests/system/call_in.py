"""Calls the command line in a folder: `python -m tests.system.call_in FOLDER ARGUMENTS...`."""

from __future__ import annotations

import os
import sys

from elastichost.cli import run_command_line

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    sys.exit(run_command_line(sys.argv[2:]))
