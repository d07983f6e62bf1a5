"""Schedulers that divide a cluster by an integer program over jobs and configurations.

sia                Sia: powers of normalised goodput
optimal_allocator  the Optimal Resource Allocator: training progress
division           grants from the chosen options
predictions        the configurations of a job and their predicted speeds
solver             the integer program, solved by HiGHS
"""
