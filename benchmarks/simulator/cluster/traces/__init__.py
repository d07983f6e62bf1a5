"""Recorded arrivals of jobs, replayed as they are.

trace    reads traces: the format of this project, and the layouts of public ones
replay   simulated jobs with the arrivals, the lengths and the requests of a trace
"""
