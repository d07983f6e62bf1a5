"""The parts that all benchmarks share.

benchmark        declares a benchmark: arms, rounds, figures, aims
interleave       measures each arm once in every round
runner           runs a benchmark, prints its tables, judges its aims
outcome          measurements, figures and verdicts of a benchmark
aims             a bound of a figure, and whether it was reached
aggregates       spreads, percentiles, bootstrap intervals
output           tables, and the JSON object in the last line of stdout
machine          describes the machine
commit           names the commit of the source tree
processes        reads and kills processes through /proc
workshop         directories and processes of one benchmark, which it removes at its end
training_run     runs a job file and reads the result
temporary_arena  an arena that is removed after use
"""
