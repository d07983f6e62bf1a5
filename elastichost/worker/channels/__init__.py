"""Connections of a worker to the parameter servers.

Modules:
    channel    requests that are repeated until they are answered, across the death of a parameter server
    exchange   state machines for what was sent and not yet confirmed; pure
    routing    which parameter server owns which key
"""
