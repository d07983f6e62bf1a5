"""Many small jobs on this host, packed: how much sooner all are done than one after another, or by other rules.

benchmark     the course of all arms, mixes and rounds; the command
jobs          the small jobs, their files, their mixes
arms          who runs beside whom, by which rule
host_run      one run of one arm
recorded      what a run came to, from the dispatcher's files
result_store  the folder of results
quality       memory estimates, and what models learnt
figures       makespans, ratios, the bound, aims
tables        what is printed
pictures      what is drawn
"""
