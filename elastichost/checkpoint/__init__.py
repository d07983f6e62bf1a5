"""Checkpoints: one consistent cut of a job on disk, with a checksum of every byte.

Modules:
    format      the public interface: layout on disk, and the functions that write, read, find and remove checkpoints
    manifest    the content of a checkpoint; how it is committed and loaded
    blocks      arrays with checksums, in one file
    files       exclusive creation, fsync, private modes
    places      where a run keeps its checkpoints, and which run a checkpoint belongs to
    catalogue   finds the checkpoints of a directory, and removes old ones
    mirror      copies checkpoints to a second directory, on another disk
"""
