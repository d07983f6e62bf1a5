"""Predicts recorded runs of several jobs on this host with the simulator, which knows each job alone.

benchmark    `python -m benchmarks.colocate.fidelity`
calibration  jobs of the simulator from runs of single jobs
prediction   simulated completion times beside the recorded ones
"""
