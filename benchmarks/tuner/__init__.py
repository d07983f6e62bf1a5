"""Benchmarks of the tuner: how well it predicts, decides and shares out."""
