"""What all benchmarks share.

benchmark        how a benchmark is declared: arms, rounds, figures, aims
interleave       in every round each arm once
runner           runs a benchmark, prints its tables, judges its aims
outcome          its measurements, figures and verdicts
aims             a bound of a figure, and whether it was reached
aggregates       spreads, percentiles, bootstrap intervals
output           tables, and the last line of stdout for programs
machine          the machine that figures come from
processes        processes as /proc shows them
workshop         directories and processes of one benchmark, of which nothing is left
training_run     one run of a job file, and its result
temporary_arena  an arena that is gone afterwards
criteo26         a workload that several benchmarks share: samples, files, job file
"""
