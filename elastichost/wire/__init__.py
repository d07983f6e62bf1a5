"""Messages between processes: their types, their bytes and their sockets. The only package that imports zmq.

Modules:
    control         messages between the supervisor and its processes
    control_hosts   messages between the supervisor and its processes that concern several machines
    control_work    messages between the supervisor and its workers: the input, the steps of sync mode
    data            messages between workers and parameter servers
    commands        messages of `scale` and other commands to a running run
    facts           structs and number ranges that messages consist of
    codec           a message as bytes
    sockets         ZeroMQ sockets, with the options that prevent silent loss of messages
    security/       keys and gates between machines
    child           the arguments of a spawned process
    entry           the main function of every spawned process: decodes arguments, reports failures
    applied         applied.bin: one record for each committed batch
    applied_fold    sums of these records; pure
    crash           named points at which tests kill a process
"""
