"""The integer program of schedulers: at most one option of each job, within cores and memory. Pure.

    maximise  sum value[i] x[i],   x[i] in {0, 1},
    subject to  the x of a job sum up to 1 if it must have an option, else to at most 1,
                sum cores[i] x[i] <= cores,   sum bytes[i] x[i] <= bytes.

HiGHS solves it (`scipy.optimize.milp`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["chosen_options"]

GAP = 1e-3  # relative accuracy
NODES = 20_000  # ends a search on every machine alike; the time limit is for the worst case only
GIB = 2.0**30
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


def chosen_options(
    value: Floats,
    cores: Floats,
    memory_bytes: Floats,
    group: Whole,
    must: npt.NDArray[np.bool_],
    capacity: tuple[float, float],
    time_limit_s: float,
) -> Whole | None:
    """Returns the chosen option of each job, int64 [jobs], -1: none; None: no choice fits, or none was found in time.

    value, cores, memory_bytes: of each option, float64 [n]. group: its job, int64 [n]. must: whether a job must have an
    option, bool [jobs]. capacity: cores and bytes."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count, jobs = len(value), len(must)
    one_each = csr_array((np.ones(count), (group, np.arange(count))), shape=(jobs, count))
    solved = milp(
        -value / max(float(np.abs(value).max(initial=0.0)), 1e-300),
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, must.astype(np.float64), 1),
            LinearConstraint(cores[None, :], -np.inf, capacity[0]),
            LinearConstraint(memory_bytes[None, :] / GIB, -np.inf, capacity[1] / GIB),
        ],
        options={"time_limit": time_limit_s, "node_limit": NODES, "mip_rel_gap": GAP},
    )
    if solved.x is None:
        return None
    picked = np.flatnonzero(solved.x > 0.5)
    # the solver's tolerance is a millionth; cores are whole numbers, so they fit exactly
    if cores[picked].sum() > capacity[0] or len(np.unique(group[picked])) < len(picked):
        return None
    found = np.full(jobs, -1, dtype=np.int64)
    found[group[picked]] = picked
    return found
