"""What faults on a Ray cluster cost, elastichost's runs and Ray Train's.

benchmark        the command
figures          from what was seen to figures
ray_bed          a Ray cluster on this machine
ray_bed_cluster  its process
elastichost_run  a run of elastichost that is hurt on purpose
ray_train        a run of Ray Train
"""
