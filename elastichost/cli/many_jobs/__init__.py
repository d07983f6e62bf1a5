"""Verbs that train many jobs on one host.

Modules:
    host        host, submit, queue, cancel, top
    batch       run A B ...
    search      search
    host_view   draws the jobs of a host on a terminal
"""
