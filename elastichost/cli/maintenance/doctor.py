"""`doctor`: checks whether this host can run a job. Each check prints its finding, and a repair where one is needed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import typer
from rich.text import Text

from elastichost.cli.maintenance.doctor_ipc import logind_facts, removes_files
from elastichost.cli.output import AsJson, data_console, print_json, progress_console
from elastichost.cli.train.hosts_option import AddressOption, HostsOption, OnOption, RayAddressOption, hosts_asked
from elastichost.errors import ExitCode
from elastichost.host.cgroup.limits import cgroup_limits
from elastichost.host.kernel_cache import COMPILE_S, kernel_cache
from elastichost.host.nvml.devices import VISIBLE, devices_of, driver_version, visible_indices
from elastichost.host.torch_packages import INSTALL, check_packages, installed_version
from elastichost.human_readable import bytes_words

if TYPE_CHECKING:
    from elastichost.config.hosts import HostsFile
    from elastichost.resources import GpuDevice

__all__ = ["Check", "check_triple", "diagnose", "doctor", "gpu_check", "gpu_without_driver", "register"]

Verdict = Literal["ok", "warning", "failed"]
HOPELESS_ARENA_BYTES = 16 << 20  # a job with a few tables needs about this much before its first batch
KEEP_FILES = (
    "as root: mkdir -p /etc/systemd/logind.conf.d && printf '[Login]\\nRemoveIPC=no\\n' > "
    "/etc/systemd/logind.conf.d/elastichost.conf && systemctl restart systemd-logind"
)
PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY_CONTROLLER = "0x10de", "0x03"  # PCI vendor, and how the class of a display controller begins
SHMEM_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
IMPORT_TIMEOUT_S = 180.0
IMPORT_SCRIPT = "import torch, fbgemm_gpu, torchrec; print(torch.__version__, torch.cuda.is_available())"
KERNEL_SCRIPT = "from elastichost.arena.index.hashing import mix64; mix64(7)"
STYLES: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "failed": "bold red"}


class Check(msgspec.Struct, frozen=True):
    """The finding of one check; `repair` is the command to type if the verdict is not ok."""

    name: str
    verdict: Verdict
    found: str
    repair: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    hosts: HostsOption = None,
    addresses: AddressOption = [],  # noqa: B006 typer copies it
    on: OnOption = None,
    ray_address: RayAddressOption = "",
    as_json: AsJson = False,
) -> None:
    """Check this host and its installation, and print repairs.

    It checks Python, torch, kernels, shared memory, cores, memory and GPU. With --hosts, --host or --on ray, it checks
    those machines instead: connection, versions, cores, memory, clocks, ports.
    """
    if (others := hosts_asked(hosts, addresses, on, ray_address)) is not None:
        _check_hosts(others, as_json)
        return
    progress_console().print("importing torch, torchrec and fbgemm (takes a few seconds)", style="dim")
    checks: list[Check] = []
    out = data_console()
    for check in diagnose():
        checks.append(check)
        if not as_json:
            out.print(Text(f"{check.verdict:<8}", STYLES[check.verdict]), f"{check.name:<14} ", end="")
            out.print(check.found)
            if check.verdict != "ok" and check.repair:
                out.print(f"         -> {check.repair}", style="cyan")
    failed = [check for check in checks if check.verdict == "failed"]
    if as_json:
        print_json({"ok": not failed, "checks": msgspec.to_builtins(checks)})
    if failed:
        raise typer.Exit(int(ExitCode.PREFLIGHT))


def _check_hosts(hosts: HostsFile, as_json: bool) -> None:
    """Prints every finding of every host. Exits with code 3 if one of the hosts cannot be used."""
    from elastichost.supervisor.remote.preflight import check_hosts

    out, findings = data_console(), []
    for finding in check_hosts(hosts):
        findings.append(finding)
        if not as_json:
            out.print(Text(f"{finding.verdict:<8} ", STYLES[finding.verdict]), end="")
            out.print(f"{finding.host:<16} {finding.name:<14} {finding.found}")
            if finding.repair:
                out.print(f"         -> {finding.repair}", style="cyan")
    failed = [finding for finding in findings if finding.verdict == "failed"]
    if as_json:
        print_json({"ok": not failed, "hosts": msgspec.to_builtins(findings)})
    if failed:
        raise typer.Exit(int(ExitCode.PREFLIGHT))


def diagnose() -> Iterator[Check]:
    """Runs all checks and yields each finding at once."""
    checks: tuple[Callable[[], Check], ...] = (
        _python,
        check_triple,
        _imports,
        _kernels,
        _shared_memory,
        _logout,
        _cores,
        _bfloat16,
        _memory,
        _cgroup,
        _gpu,
        _ssh,
    )
    for check in checks:
        yield check()


def _bfloat16() -> Check:
    from elastichost.host.cpu_features import bfloat16_unit, present_cpu, refuses_bfloat16

    if unit := bfloat16_unit(present_cpu()):
        found = f'{unit}: large dense nets train several times as fast with train.precision = "bfloat16"'
    else:
        found = f"not on this CPU: {refuses_bfloat16(present_cpu())}"
    return Check("bfloat16", "ok", found)


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        return Check("python", "failed", found, "elastichost needs Linux, because it uses /dev/shm and /proc")
    return Check("python", "ok", found)


def check_triple(installed: Callable[[str], str | None] = installed_version) -> Check:
    """Checks that torch, torchrec and fbgemm belong together. `installed` returns the version of a package, or None."""
    packages = check_packages(installed)
    if packages.problem:
        return Check("torch triple", "failed", f"{packages.found}; {packages.problem}", packages.repair)
    return Check("torch triple", "ok", packages.found)


def _said_by(script: str, name: str, late: str) -> str | Check:
    """Runs a script in a new Python process and returns its stdout, or a failed Check called `name` if the process
    fails or takes longer than IMPORT_TIMEOUT_S. `late` describes the time-out."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Check(name, "failed", f"{late} after {IMPORT_TIMEOUT_S:.0f} s", INSTALL)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"ended with exit code {done.returncode}"])[-1]
        return Check(name, "failed", last, INSTALL)
    return done.stdout


def _imports() -> Check:
    """Imports torch in a separate process, because a broken extension module may end the process that imports it."""
    said = _said_by(IMPORT_SCRIPT, "torch import", "not finished")
    if isinstance(said, Check):
        return said
    torch_version, cuda = said.split()[-2:]
    return Check(
        "torch import", "ok", f"torch {torch_version}, CUDA {'available' if cuda == 'True' else 'not available'}"
    )


def _kernels() -> Check:
    """Compiles one kernel, as every run does at its start."""
    said = _said_by(KERNEL_SCRIPT, "kernels", "no kernel was compiled")
    if isinstance(said, Check):
        return said
    cache = kernel_cache()
    if cache.directory is None:
        return Check("kernels", "warning", cache.problem, "export NUMBA_CACHE_DIR=/a/directory/of/your/own")
    when = f"by the first run, in about {COMPILE_S:.0f} s"
    return Check("kernels", "ok", f"compiled {when}, then kept in {cache.directory}")


def _shared_memory() -> Check:
    from elastichost.arena.host import SMALL_BYTES, arena_root

    root = arena_root()
    repair = "mount -o remount,size=8G /dev/shm   (docker: --shm-size=8g; or set ELASTICHOST_ARENA_DIR to a directory)"
    if not root.is_dir() or not os.access(root, os.W_OK | os.X_OK):
        return Check("shared memory", "failed", f"{root} is not a writable directory", repair)
    usage = shutil.disk_usage(root)
    found = f"{root}: {bytes_words(usage.free)} free of {bytes_words(usage.total)}"
    if usage.free < SMALL_BYTES:
        verdict: Verdict = "failed" if usage.free < HOPELESS_ARENA_BYTES else "warning"
        found = f"{found}: it holds the embedding rows; when it is full, new ids get no row"
        return Check("shared memory", verdict, found, f"elastichost clean;  {repair}")
    return Check("shared memory", "ok", f"{found}, huge pages: {_huge_pages()}")


def _logout() -> Check:
    """Checks whether arenas survive the end of the user's last login session."""
    from elastichost.arena.host import arena_root

    facts = logind_facts()
    if not removes_files(facts, arena_root()):
        return Check("logout", "ok", "files below /dev/shm stay after logout")
    said = f"RemoveIPC={facts.removes}" if facts.removes else "RemoveIPC is not set, which means yes"
    found = (
        f"at the last logout of {facts.user}, systemd removes all of the user's files below /dev/shm, "
        f"including those of running jobs ({said})"
    )
    return Check("logout", "warning", found, f"loginctl enable-linger {facts.user}   (or {KEEP_FILES})")


def _huge_pages() -> str:
    """The host's setting of huge pages for shared memory; with "advise" or more, large fixed tables use them."""
    try:
        choices = SHMEM_HUGE_PAGES.read_text(encoding="ascii")
    except OSError:
        return "not known"
    return choices.partition("[")[2].partition("]")[0] or "not known"


def _cores() -> Check:
    usable, total = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    return Check("cores", "ok", f"{usable} usable of {total}")


def _memory() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{bytes_words(memory.available)} available of {bytes_words(memory.total)}"
    if memory.available < 2 << 30:
        return Check("memory", "warning", found, "close other programs; a worker with torch needs about half a GiB")
    return Check("memory", "ok", found)


def _cgroup() -> Check:
    """Reports the memory and CPU limits of this process' group and of the groups above it, as in a container; they can
    be lower than what the host has."""
    limits, found = [], cgroup_limits()
    if found.memory_bytes is not None:
        limits.append(f"memory {bytes_words(found.memory_bytes)}")
    if found.cores is not None:
        limits.append(f"cpu {max(1, found.cores)} cores")
    return Check("cgroup", "ok", ", ".join(limits) or "no limits")


def _gpu() -> Check:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return gpu_without_driver(PCI_DEVICES, str(error))
    try:
        devices, expected, driver = devices_of(pynvml), int(pynvml.nvmlDeviceGetCount()), driver_version(pynvml)
    except pynvml.NVMLError as error:
        return Check("gpu", "warning", f"NVML fails: {error}", "nvidia-smi shows the state of the driver")
    finally:
        pynvml.nvmlShutdown()
    is_cpu_build = installed_version("fbgemm-gpu-cpu") is not None
    return gpu_check(devices, expected, driver, os.environ.get(VISIBLE), is_cpu_build=is_cpu_build)


def gpu_check(
    devices: tuple[GpuDevice, ...], expected: int, driver: str, visible: str | None, *, is_cpu_build: bool
) -> Check:
    """The finding about GPUs. devices: those that answer. expected: how many the driver counts. visible: the value of
    CUDA_VISIBLE_DEVICES. is_cpu_build: torch and fbgemm are builds without CUDA."""
    if not expected:
        return Check("gpu", "ok", "none (not needed)")
    named = [f"GPU {gpu.index} {gpu.name} {bytes_words(gpu.memory_bytes)}" for gpu in devices]
    found = f"{', '.join(named) or 'none answers'}; driver {driver or 'of an unknown version'}"
    if visible is not None:
        usable = visible_indices(visible, {gpu.index: gpu.uuid for gpu in devices})
        found += f"; {VISIBLE} = {visible!r} leaves {', '.join(f'GPU {index}' for index in usable) or 'none'}"
    if len(devices) < expected:
        silent = sorted(set(range(expected)) - {gpu.index for gpu in devices})
        found += f"; GPU {', '.join(map(str, silent))} does not answer"
        return Check("gpu", "warning", found, "nvidia-smi shows its state; a GPU that fell off the bus needs a reboot")
    if is_cpu_build:
        repair = "make DEVICE=gpu run   (outside of a clone: reinstall torch and fbgemm-gpu with CUDA)"
        return Check("gpu", "warning", f"{found}; but the CPU build is installed", repair)
    return Check("gpu", "ok", found)


def gpu_without_driver(devices: Path, problem: str) -> Check:
    """The finding when NVML cannot be used. devices: the kernel's folder of PCI devices. problem: NVML's reason."""
    found = [device.name for device in sorted(devices.glob("*")) if _is_nvidia_gpu(device)]
    if not found:
        return Check("gpu", "ok", "none (not needed)")
    told = f"an NVIDIA GPU (PCI {', '.join(found)}) without a driver that answers: {problem}"
    return Check("gpu", "warning", told, "install NVIDIA's driver; nvidia-smi must list the GPU")


def _is_nvidia_gpu(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text(encoding="ascii").strip() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor == NVIDIA and kind.startswith(DISPLAY_CONTROLLER)


def _ssh() -> Check:
    path = shutil.which("ssh")
    if path is None:
        return Check("ssh", "warning", "not found (only jobs on several hosts need it)", "apt install openssh-client")
    return Check("ssh", "ok", path)
