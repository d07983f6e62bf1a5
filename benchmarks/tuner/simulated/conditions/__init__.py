"""The conditions under which policies are compared.

requests   what users ask for: at random, sensible, well tuned
seeds      of the constants, and of the tables
host_mixes kinds of hosts
trace_jobs jobs whose arrivals come from a trace file
"""
