"""Constants of this machine: the same in every process while the machine runs."""

from __future__ import annotations

import mmap

from elastichost.host.environment import address_bytes

__all__ = ["ADDRESS_BYTES", "PAGE_BYTES"]

PAGE_BYTES = mmap.PAGESIZE  # 4 KiB on x86; ARM has kernels with 4, 16 and 64 KiB
ADDRESS_BYTES = address_bytes()  # size of the address space of one process
