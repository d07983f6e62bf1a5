"""Data with planted truth, made on the fly.

Modules:
    reader   any range of samples
    kernel   each sample a pure function of seed and index
"""
