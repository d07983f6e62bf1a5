"""The constants of dispatching, with what each is for. Pure values."""

from __future__ import annotations

import msgspec

from elastichost.tuner.colocation.facts import HostCapacity, PolicyName

__all__ = ["ColocationSettings"]


class ColocationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are dispatched. `complementarity`, `memory_admission` and `feedback` are the parts of `complementary`
    that an ablation takes away: without the first it starts, in order of arrival, whatever fits; without the second it
    counts jobs instead of bytes; without the third it takes no corrections, and nothing is done against who crowds
    others."""

    policy: PolicyName = "complementary"
    # A newcomer has to add this much to the worth of the host (in jobs alone): less is lost again in caches and
    # switches, which no demand row has.
    least_gain: float = 0.05
    # and must leave everyone this share of the speed they have alone: at less a job's own waiting, time-outs and
    # stragglers grow out of proportion, and its memory is held for long.
    least_speed: float = 0.35
    # Gains that differ by less are equal: demands are not known better. Of equals the job with most left is first,
    # since nothing ends before the longest does.
    near_gain: float = 0.1
    # After so long a job is due: what arrived much later no longer passes it, it may add nothing at all to the worth,
    # and it has to leave the others only half of `least_speed`.
    patience_s: float = 600.0
    # Arrivals within so long of each other are one batch, in which nobody passes anybody.
    batch_s: float = 60.0
    # What waiting for `patience_s` adds to a gain when jobs are compared. It goes on growing.
    aging_gain: float = 0.25
    # Of a GPU's bottleneck load (its largest sum of demands) is taken off the gain so much: among GPUs that promise the
    # same, that with the most room is taken.
    balance: float = 0.05
    # Jobs at once; 0: as the policy has it, which is the cores for `fifo`, `random` and whatever counts jobs instead of
    # bytes, and any number elsewhere.
    most_jobs: int = 0
    seed: int = 0  # of `random`
    # RMixer's margin over its estimate, in place of the ledger's own
    rmixer_margin: float = 1.2
    # RMixer's rule starts nothing where all that wait are of the type that runs. Read so, a batch of one type would run
    # one after another, which its figures rule out: here it then takes the first that fits.
    rmixer_same_type: bool = True
    complementarity: bool = True
    memory_admission: bool = True
    feedback: bool = True

    def most(self, host: HostCapacity, counts_jobs: bool) -> int:
        """Jobs that may run at once; 0: any number. counts_jobs: the policy has a limit of its own, the cores."""
        return self.most_jobs or (host.cores if counts_jobs else 0)
