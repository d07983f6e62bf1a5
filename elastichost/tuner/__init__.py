"""How many processes of each kind a job should have, with which cores. Pure."""
