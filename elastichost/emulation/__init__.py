"""An emulated cluster: workers and PS are real processes that exchange real messages, but wait instead of computing.

Modules:
    scenarios     jobs with known true costs; pure
    costs         the scenario of a job file; pure
    load          how many cores of the real host the messages need; pure
    model         the model: tables that are nearly empty; pure
    main          entries of the processes
    worker        the loop of a worker
    batches       cuts leases into batches; pure
    commit        the commits of a worker: real pushes with gradients of zero
    prices        the costs of a batch and of a request; pure
    timeline      the moments at which a worker acts; pure
    exchange      the requests of a worker to all PS
    server        the loop of a PS
    server_queue  the virtual cores and the network link of a PS; pure
"""
