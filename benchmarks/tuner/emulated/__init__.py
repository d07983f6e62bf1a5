"""Measures the control plane with hundreds of emulated workers on this host.

benchmark  `python -m benchmarks.tuner.emulated`
cloud      the emulated run
"""
