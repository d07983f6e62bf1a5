"""Checkpoints: one consistent cut of a job on disk, every byte of it under a checksum.

Modules:
    format      the public face: what lies on disk, and the functions that write, read, find and clear it
    manifest    what a checkpoint holds; how it is committed and loaded
    blocks      arrays with checksums, in one file
    files       exclusive creation, fsync, private modes
    places      where a run keeps its checkpoints, and whose a checkpoint is
    catalogue   which checkpoints there are, and which are cleared away
    mirror      a second directory, on another disk
"""
