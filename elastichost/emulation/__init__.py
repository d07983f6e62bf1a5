"""An emulated cloud: workers and PS that are real processes with real messages, and wait instead of computing.

scenarios     jobs whose true costs are known
costs         what the job file says of its costs
load          what all of it asks of the real host
model         tables that are nearly empty
main          entries of the processes
worker        the loop of a worker
batches       leases cut into batches
commit        real pushes, of gradients that are zero
prices        what a batch and a request take
timeline      when a worker does what
exchange      its requests to all PS
server        the loop of a PS
server_queue  its virtual cores and its link
"""
