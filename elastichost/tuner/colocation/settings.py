"""The settings of dispatching, with the reason for each value. Pure values."""

from __future__ import annotations

import msgspec

from elastichost.tuner.colocation.facts import HostCapacity, PolicyName

__all__ = ["ColocationSettings"]


class ColocationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are dispatched. An ablation can switch off four parts of `complementary`. Without `complementarity`,
    the policy starts every job that fits, in order of arrival. Without `memory_admission`, it counts jobs instead of
    bytes. Without `input_tracking`, no job has a demand on the input. Without `feedback`, it uses no corrections, and
    no action is taken against jobs that crowd others."""

    policy: PolicyName = "complementary"
    # Least gain of a start, in jobs alone: smaller gains are lost in caches and context switches, which no demand row
    # contains.
    least_gain: float = 0.05
    # Least share of its speed alone that every job must keep: below it the waiting, the time-outs and the stragglers of
    # a job grow out of proportion, and its memory is held for a long time.
    least_speed: float = 0.35
    # Gains that differ by less are equal, because demands are not known more exactly. Of equal ones the job with most
    # left starts first, because a batch ends with its longest job.
    near_gain: float = 0.1
    # A job that waited this long is due: jobs that arrived after its batch no longer pass it, it needs no gain, and it
    # must leave others only half of `least_speed`.
    patience_s: float = 600.0
    # A job waits for a due job only if it arrived more than this number of seconds after it.
    batch_s: float = 60.0
    # The score that a wait of `patience_s` adds in comparisons; it grows further with the wait.
    aging_gain: float = 0.25
    # Weight of a GPU's bottleneck load (the largest sum of demands), which is deducted from the gain: of GPUs with
    # equal gains, the one with the most room is used.
    balance: float = 0.05
    # Share of its gain that counts in comparisons for a job that waits for its input beside another one that does, as
    # long as no capacity of their source is known. Its gain is all of it or nothing, so the expected
    # half counts, and a job that computes starts first. Memory held by jobs that share one full source is lost to it.
    unsure_gain: float = 0.5
    # Largest number of running jobs; 0: that of the policy: the number of cores for `fifo`, `random` and without
    # `memory_admission`, otherwise no limit.
    most_jobs: int = 0
    seed: int = 0  # of `random`
    # RMixer's margin over its estimate, used instead of the ledger's margins
    rmixer_margin: float = 1.2
    # RMixer's rule starts no job if all waiting jobs have the type of the running ones. Taken literally, a batch of one
    # type would run one job at a time, which contradicts its published figures. So it starts the first job that fits.
    rmixer_same_type: bool = True
    complementarity: bool = True
    memory_admission: bool = True
    feedback: bool = True
    input_tracking: bool = True

    def most(self, host: HostCapacity, counts_jobs: bool) -> int:
        """Largest number of jobs that may run at once; 0: no limit. counts_jobs: the cores limit the jobs."""
        return self.most_jobs or (host.cores if counts_jobs else 0)
