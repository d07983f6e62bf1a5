"""Simulates batches of small jobs on hosts with GPUs.

benchmark  the command
plan       the parts and arms, and one run
figures    means over seeds
"""
