"""Faults.

Modules:
    process_faults   one class for each kind of fault
    processes        signals to processes of a run
    message_faults   which messages are lost or late; pure
    proxy            loses and delays them
    bad_input        garbage for every socket
"""
