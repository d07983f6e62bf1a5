"""Checkpoints: one consistent cut of a job on disk, every byte of it under a checksum.

`format` is the public face: what lies on disk, and the functions that write, read, find and clear it.
"""
