"""Gates: encrypted and authenticated sockets for processes of other machines.

Modules:
    keys         CURVE keys, and the list of processes that a gate admits
    listener     the listening socket of a gate, and its limit on descriptors
    tcp_router   both ends of a connection between machines: names, limits, long messages in parts
    refusals     bounded reports of refused messages
"""
