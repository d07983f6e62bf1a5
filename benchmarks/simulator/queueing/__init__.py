"""How fast a job truly is in a configuration.

queues              workers, PS and links as queues in virtual time, compiled
fork_join           a scenario's observation in one configuration, from these queues
configuration_grid  the configurations in which scenarios are tried
truth_tables        what the queues say at a lattice of configurations, kept in truth_tables.npz
job_speed           a job's speed anywhere between the points of a table, with costs of its own
partial_cores       the rule for less than one core
"""
