"""Machines that come and go while a run trains.

Modules:
    join            a machine joins
    loss            a machine is lost
    arena_replica   the supervisor's copy of what it must see of an arena elsewhere
"""
