"""Simulated histories: the real loops on a simulated host. See `histories`."""
