"""What processes say to each other: messages, frames, sockets. The only package that imports zmq.

Modules:
    control         messages between the supervisor and its processes
    control_hosts   those of them about several machines
    data            messages between workers and parameter servers
    commands        messages of `scale` and others to a run under way
    facts           what messages are made of
    codec           a message as bytes
    sockets         ZeroMQ sockets, with the traps of ZeroMQ closed
    security/       keys and gates between machines
    child           what a spawned process is told
    entry           the frame around every spawned process: arguments in, typed failure out
    applied         applied.bin: one record for each committed batch
    applied_fold    what these records come to; pure
    crash           named points at which tests kill a process
"""
