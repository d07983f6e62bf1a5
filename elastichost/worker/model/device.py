"""Where the dense part computes: the CPU, or the one GPU this process was given."""

from __future__ import annotations

import time

import torch

from elastichost.errors import PreflightError
from elastichost.host.affinity import move_to_cores
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import RepinMsg

__all__ = ["choose_device", "gpu_memory_bytes", "move_training", "seed_generators", "training_cpu_since"]


def choose_device(arguments: ChildArguments) -> torch.device:
    """The supervisor sets CUDA_VISIBLE_DEVICES to this process' GPU, so it is always cuda:0 here.

    Raises PreflightError when the plan says GPU and torch cannot use one.
    """
    torch.set_num_threads(max(1, arguments.threads))
    if arguments.gpu is None:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise PreflightError(
            f"{arguments.process} was given GPU {arguments.gpu}, but this torch cannot use CUDA",
            hint="install the gpu extra, or set resources.gpus = 0",
        )
    torch.cuda.set_per_process_memory_fraction(arguments.gpu_memory_fraction, 0)
    return torch.device("cuda", 0)


def move_training(asked: RepinMsg) -> None:
    """To other cores, with another number of threads; between two batches."""
    move_to_cores(asked.cores)
    torch.set_num_threads(asked.threads)


def gpu_memory_bytes(device: torch.device) -> int:
    """Memory this process holds on its GPU; 0 on the CPU."""
    return 0 if device.type != "cuda" else int(torch.cuda.memory_reserved(device))


def seed_generators(device: torch.device, seed: int) -> None:
    """torch's generators for the CPU and for this device. `torch.manual_seed` also remembers a call, with the stack it
    came from, for every kind of accelerator that is not in use: 1.5 ms each time, and memory."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def training_cpu_since(began_s: float, device: torch.device) -> float | None:
    """CPU time that the calling thread has used since `time.thread_time()` was `began_s`. None where a GPU computes:
    the thread spins while it waits, and others who wait for the same GPU make that longer."""
    return time.thread_time() - began_s if device.type == "cpu" else None
