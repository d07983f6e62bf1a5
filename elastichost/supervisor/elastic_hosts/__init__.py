"""Machines that join a run and machines that are lost while it trains.

Modules:
    join            machines join
    loss            a machine is lost
    arena_replica   the supervisor's replica of the arena of another machine
"""
