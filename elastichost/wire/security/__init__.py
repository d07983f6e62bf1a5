"""Gates that other machines reach.

Modules:
    keys         CURVE keys, and the processes that may come in
    listener     the listening socket of a gate
    tcp_router   both ends of a way between machines
    refusals     what is said of refused messages
"""
