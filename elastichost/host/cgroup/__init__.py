"""The cgroup of this process, which may limit its memory and its CPU time.

Modules:
    groups  finds the directory of a group, from the texts of /proc
    limits  reads the limits of this process' group and of the groups around it
"""
