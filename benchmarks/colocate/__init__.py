"""Measures many small jobs that train together on this host, compared with one after another and with other policies.

benchmark     the command: runs all arms, mixes and rounds
jobs          the small jobs, their files, their mixes
arms          the policies that are compared
shared_source, shared_reader    the source that all disk jobs share, and their reader
host_run      one run of one arm
recorded      the record of a run, read from the dispatcher's files
result_store  the folder of results
durations     how long runs will take
quality       accuracy of memory estimates, and AUCs
figures       makespans, ratios, the bound, aims
tables        printed tables
pictures      charts
fidelity       predicts recorded runs of several jobs with the simulator
"""
