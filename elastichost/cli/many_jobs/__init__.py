"""Verbs of a host with many jobs.

Modules:
    host        host, submit, queue, cancel, top
    batch       run A B ...
    host_view   what many jobs look like on a terminal
"""
