"""Where batches end, and how many samples are scored at a time. Pure.

A model with batch normalisation cannot train on one sample. So a trailing batch with fewer than MIN_SAMPLES samples
joins the batch before it: a batch has `batch_size` samples, the last one of a range up to MIN_SAMPLES - 1 more. All
code that divides positions (leases, steps, the reader) uses these functions, so that no range ends with a batch that
is too small. Single samples that have no batch before them stay single: a unit of one sample, or one sample between
positions that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["MIN_SAMPLES", "batch_ranges", "batch_stop", "batches_of", "largest_batch", "scored_batch"]

MIN_SAMPLES = 2  # a trailing batch with fewer samples joins the batch before it
LEAST_SCORED, MOST_SCORED = 512, 4096


def batch_stop(start: int, stop: int, batch_size: int, min_samples: int = MIN_SAMPLES) -> int:
    """The position at which the first batch of [start, stop) ends."""
    end = start + batch_size
    return stop if stop - end < min(min_samples, batch_size) else end


def batch_ranges(start: int, stop: int, batch_size: int, min_samples: int = MIN_SAMPLES) -> Iterator[tuple[int, int]]:
    """The ranges (start, stop) of the batches of [start, stop), in order."""
    while start < stop:
        end = batch_stop(start, stop, batch_size, min_samples)
        yield start, end
        start = end


def batches_of(samples: int, batch_size: int) -> int:
    """The number of batches of a range of `samples` positions."""
    whole, rest = divmod(samples, batch_size)
    return whole + (rest >= min(MIN_SAMPLES, batch_size) or (rest > 0 and whole == 0))


def largest_batch(batch_size: int) -> int:
    """The largest number of samples that a batch can have."""
    return batch_size + min(MIN_SAMPLES, batch_size) - 1


def scored_batch(batch_size: int) -> int:
    """The number of samples that a worker scores at a time. batch_size: of training. Scoring keeps no tensors for a
    backward pass, so twice as many samples take about the memory of a training step; more would make an evaluation the
    moment at which a job needs most memory."""
    return max(batch_size, min(MOST_SCORED, max(LEAST_SCORED, 2 * batch_size)))
