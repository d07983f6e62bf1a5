"""The true speed of a job in a configuration.

queues              workers, PS and links as queues in virtual time, compiled
fork_join           the observation of a scenario in one configuration, from these queues
configuration_grid  the configurations in which scenarios are measured
truth_tables        results of the queues on a lattice of configurations, stored in truth_tables.npz
job_speed           the speed of a job between the points of a table, with its own costs
misfit              a speed that departs smoothly from every model
partial_cores       the rule for less than one core
"""
