"""Whole training runs.

access_speed    samples a second by number of workers and way of access
retail_quality  AUC on real data in every access, mode and kind of table
links           two hosts, by the speed of the link between them
"""
