"""Whether the installed torch, torchrec and fbgemm belong together.

The three are built for one another in release lines. torchrec asks for `fbgemm-gpu`, the CUDA build; only a CUDA build
of torch can load it. Packages are found by their metadata, which takes milliseconds; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import msgspec

__all__ = ["LINES", "TorchPackages", "check_packages", "installed_version"]

LINES = {"torch": "2.13", "torchrec": "1.8", "fbgemm": "1.8"}
INSTALL = "pip install 'torch==2.13.*' 'torchrec==1.8.*' 'fbgemm-gpu==1.8.*'   (in a clone: rm -rf .venv && make run)"
TAKE_CPU_BUILD = (
    "pip uninstall -y fbgemm-gpu && pip install --no-deps --force-reinstall fbgemm-gpu-cpu==1.8.0   "
    "(in a clone: rm -rf .venv && make run)"
)
CPU_MARK = "+cpu"  # in the versions of CPU builds, and of the package that stands for one


class TorchPackages(msgspec.Struct, frozen=True):
    """found: the versions, for people. problem: why they do not work together; "": they do. repair: what to type."""

    found: str
    problem: str = ""
    repair: str = ""


def installed_version(package: str) -> str | None:
    """The version of an installed package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_packages(installed: Callable[[str], str | None] = installed_version) -> TorchPackages:
    """Checks release lines and builds. installed: returns the version of a package, or None."""
    torch, torchrec = installed("torch"), installed("torchrec")
    cuda, cpu = installed("fbgemm-gpu"), installed("fbgemm-gpu-cpu")
    if cuda is not None and CPU_MARK in cuda:
        cuda, cpu = None, cpu or cuda
    fbgemm = cpu or cuda
    found = f"torch {torch or '-'}, torchrec {torchrec or '-'}, fbgemm {fbgemm or '-'}"
    if cpu is not None and cuda is not None:
        problem = f"fbgemm-gpu {cuda} and fbgemm-gpu-cpu {cpu} overwrite each other"
        return TorchPackages(found, problem, TAKE_CPU_BUILD if CPU_MARK in (torch or "") else INSTALL)
    versions = {"torch": torch, "torchrec": torchrec, "fbgemm": fbgemm}
    if any(given is None or not _is_of_line(given, LINES[name]) for name, given in versions.items()):
        needed = ", ".join(f"{name} {line}" for name, line in LINES.items())
        return TorchPackages(found, f"needed: {needed}", INSTALL)
    if torch is not None and CPU_MARK in torch and cuda is not None:
        problem = f"fbgemm-gpu {cuda} is a CUDA build, which the CPU build of torch cannot load"
        return TorchPackages(found, problem, TAKE_CPU_BUILD)
    return TorchPackages(found)


def _is_of_line(given: str, line: str) -> bool:
    return given == line or given.startswith((f"{line}.", f"{line}+"))
