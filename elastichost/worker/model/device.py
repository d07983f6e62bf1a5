"""The device that computes the dense part: the CPU, or the one GPU that this process was given."""

from __future__ import annotations

import time

import torch

from elastichost.errors import GpuLostError, PreflightError
from elastichost.gpu.availability import is_interpreted
from elastichost.host.affinity import move_to_cores
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import RepinMsg

__all__ = [
    "choose_device",
    "gpu_memory_bytes",
    "move_training",
    "seed_generators",
    "share_gpu_memory",
    "training_cpu_since",
]

LEAST_SHARE = 0.01  # of a GPU that is left to torch


def choose_device(arguments: ChildArguments) -> torch.device:
    """The torch device for this process, from the plan. Also sets torch's thread count and its GPU memory limit.

    The supervisor sets CUDA_VISIBLE_DEVICES to this process' GPU, so it is always cuda:0 here. In Triton's interpreter
    the CPU stands for the GPU. Raises PreflightError when the plan assigns a GPU and torch is a build without CUDA, and
    GpuLostError when CUDA does not find the GPU.
    """
    torch.set_num_threads(max(1, arguments.threads))
    if arguments.gpu is None or is_interpreted():
        return torch.device("cpu")
    if torch.version.cuda is None:
        raise PreflightError(
            f"{arguments.process} was given GPU {arguments.gpu}, but the installed torch cannot use CUDA",
            hint="install the gpu extra, or set resources.gpus = 0",
        )
    if not torch.cuda.is_available():
        raise GpuLostError(
            f"{arguments.process} was given GPU {arguments.gpu}, and CUDA does not find it",
            hint="run `elastichost doctor` to check the driver and the GPUs",
        )
    torch.cuda.set_per_process_memory_fraction(arguments.gpu_memory_fraction, 0)
    return torch.device("cuda", 0)


def move_training(asked: RepinMsg) -> None:
    """Moves the process to other cores and sets torch's number of threads. Call it between two batches."""
    move_to_cores(asked.cores)
    torch.set_num_threads(asked.threads)


def gpu_memory_bytes(device: torch.device) -> int:
    """Bytes that torch has reserved on this process' GPU; 0 on the CPU."""
    return 0 if device.type != "cuda" else int(torch.cuda.memory_reserved(device))


def share_gpu_memory(device: torch.device, share: float, other_bytes: int) -> None:
    """Leaves torch what is left of this process' share of its GPU's memory after `other_bytes`, which torch does not
    know."""
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(LEAST_SHARE, share - other_bytes / whole), 0)


def seed_generators(device: torch.device, seed: int) -> None:
    """Seeds torch's random generators of the CPU and of this device.

    `torch.manual_seed` is not used: it also queues a call, with its stack trace, for every kind of accelerator that is
    not initialised, which takes 1.5 ms each time and memory.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def training_cpu_since(began_s: float, device: torch.device) -> float | None:
    """CPU seconds that the calling thread has used since `time.thread_time()` was `began_s`.

    None when a GPU computes: the thread spins while it waits for the GPU, and jobs that share the GPU make that time
    longer.
    """
    return time.thread_time() - began_s if device.type == "cpu" else None
