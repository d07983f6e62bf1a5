"""Connections of a worker to the parameter servers.

Modules:
    channel    connections that survive the death of a parameter server
    exchange   what was sent and not yet confirmed; pure
    routing    which parameter server owns which key
"""
