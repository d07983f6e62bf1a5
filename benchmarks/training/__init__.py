"""Whole training runs.

access_speed    samples per second by number of workers and access
retail_quality  AUC on real data with every access, mode and kind of table
observers       what it costs a run to be watched
links           two hosts, by the speed of the link between them
"""
