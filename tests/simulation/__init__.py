"""Simulated histories: the real loops run on a simulated host. See `histories`."""
