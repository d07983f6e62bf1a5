"""Names the commit of the source tree that a benchmark runs, so that kept results can say what they measured."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["read_commit"]

CHARACTERS = 12  # of the name of a commit


def read_commit(folder: Path) -> str:
    """The commit of the working tree in `folder`, with "+" behind it if tracked files differ from it. "" if the folder
    belongs to no repository, or there is no git."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(folder), "describe", "--always", "--exclude=*", f"--abbrev={CHARACTERS}", "--dirty=+"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""
