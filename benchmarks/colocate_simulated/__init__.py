"""Batches of small jobs on simulated hosts with GPUs.

benchmark  the command
plan       parts, arms, and one run
figures    means over seeds
"""
