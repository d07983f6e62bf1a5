"""Hundreds of emulated workers on this host.

benchmark  `python -m benchmarks.tuner.emulated`
cloud      the run
"""
