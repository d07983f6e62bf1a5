"""Compiles kernels.cu with nvrtc, or with nvcc where nvrtc fails, and loads the functions of rows.c."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["compile_kernels", "load_rows_library"]

FOLDER = Path(__file__).parent


def compile_kernels(target: Path) -> str:
    """Writes the kernels' machine code for compute capability 9.0 and returns which compiler made it. Raises
    RuntimeError with the errors of both compilers."""
    source = FOLDER / "kernels.cu"
    try:
        target.write_bytes(compiled_by_nvrtc(source.read_bytes()))
        return "nvrtc"
    except (ImportError, RuntimeError, OSError) as error:
        command = ["nvcc", "-arch=sm_90", "-cubin", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"nvrtc: {error}; nvcc: {done.stderr}") from error
        return f"nvcc, because nvrtc: {error}"


def compiled_by_nvrtc(source: bytes) -> bytes:
    """Returns the machine code. Raises RuntimeError with nvrtc's log."""
    nvrtc = importlib.import_module("cuda.bindings.nvrtc")

    def call(function: str, *arguments: Any) -> Any:
        code, *values = getattr(nvrtc, function)(*arguments)
        if int(code) != 0:
            raise RuntimeError(f"{function}: {getattr(code, 'name', code)}")
        return values[0] if values else None

    program = call("nvrtcCreateProgram", source, b"kernels.cu", 0, [], [])
    try:
        call("nvrtcCompileProgram", program, 1, [b"--gpu-architecture=sm_90"])
    except RuntimeError as error:
        log = b" " * int(call("nvrtcGetProgramLogSize", program))
        call("nvrtcGetProgramLog", program, log)
        raise RuntimeError(f"{error}: {log.decode()}") from error
    code: bytes = b" " * int(call("nvrtcGetCUBINSize", program))
    call("nvrtcGetCUBIN", program, code)
    return code


def load_rows_library(folder: Path) -> ctypes.CDLL:
    """Returns the compiled functions of rows.c; it is compiled into the folder. Raises CalledProcessError."""
    target = folder / "rows.so"
    command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", str(target), str(FOLDER / "rows.c")]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(target))
    for function in (library.gather_rows, library.update_rows):
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
        function.restype = ctypes.c_uint64
    return library
